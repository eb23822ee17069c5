"""``cvm completion``: scripts with which a shell completes commands, options and their values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import Json
from cvm.cli.output import print_document
from cvm.records import dataclass

__all__ = ["command_of"]


_Shell = Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell that the script is for.")]


def command_of(root: Callable[[], Any]) -> Command:
    """The command ``cvm completion``; ``root`` gives the tree of all commands, as Typer makes it."""

    def command(shell: _Shell, as_json: Json = False) -> int:
        """Print a script that completes commands, options and their values. The shell reads it at each start.

        Bash: `source <(cvm completion bash)` in ~/.bashrc. Zsh: the same with zsh, in ~/.zshrc, after compinit. Fish:
        `cvm completion fish > ~/.config/fish/completions/cvm.fish`.
        """
        if shell not in _SCRIPTS:
            raise Usage(f"expected a shell, {', '.join(_SCRIPTS)}; found {shell!r}")
        script = _SCRIPTS[shell](_offers(root()))
        if as_json:
            print_document({"shell": shell, "script": script})
        else:
            print(script, end="")
        return 0

    examples = ("cvm completion bash", "cvm completion fish > ~/.config/fish/completions/cvm.fish")
    return Command(command, examples)


@dataclass(frozen=True, slots=True)
class _Option:
    """An option: its spellings, the words that it accepts if they are few, and whether it takes a value."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    takes: bool
    help: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """What may follow a command: commands with their summaries, or options."""

    commands: Mapping[str, str]
    options: tuple[_Option, ...]


def _offers(root: Any) -> dict[str, _Offer]:
    """What may follow each command, by its words; "" stands for ``cvm`` itself."""
    found: dict[str, _Offer] = {}

    def enter(words: str, entry: Any) -> None:
        commands: Mapping[str, Any] = getattr(entry, "commands", {})
        options = tuple(_option(item) for item in entry.params if item.param_type_name == "option")
        found[words] = _Offer({name: each.short_help or "" for name, each in commands.items()}, options)
        for name, each in commands.items():
            enter(f"{words} {name}".strip(), each)

    enter("", root)
    return found


def _option(item: Any) -> _Option:
    metavar = item.metavar or ""
    values = tuple(metavar.split("|")) if re.fullmatch(r"[a-z0-9-]+(\|[a-z0-9-]+)+", metavar) else ()
    return _Option((*item.opts, *item.secondary_opts), values, not item.is_flag, (item.help or "").split(". ")[0])


_BASH = """\
# Completion of cvm for bash: source <(cvm completion bash)
_cvm() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" words=""
    if [ "$COMP_CWORD" -gt 1 ]; then
        command="${{COMP_WORDS[1]}}"
        case "$command" in
            {groups}) [ "$COMP_CWORD" -gt 2 ] && command="$command ${{COMP_WORDS[2]}}" ;;
        esac
    fi
    case "$command $before" in
{values}
        *)
            case "$command" in
{commands}
            esac
            case "$command,$current" in
{options}
            esac
            ;;
    esac
    COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o bashdefault -o default -F _cvm cvm
"""


def _bash(offers: Mapping[str, _Offer]) -> str:
    """The script for bash. Where it offers nothing, bash completes the names of files."""
    groups = [words for words, offer in offers.items() if words and offer.commands]
    values = [
        f'        {_patterns(words, option)}) words="{" ".join(option.values)}" ;;'
        for words, offer in offers.items()
        for option in offer.options
        if option.values
    ]
    commands = [
        f'                {shlex.quote(words)}) words="{" ".join(offer.commands)}" ;;'
        for words, offer in offers.items()
        if offer.commands
    ]
    options = [
        f'                {shlex.quote(words + ",-")}*) words="{" ".join(_spellings(offer))}" ;;'
        for words, offer in offers.items()
    ]
    return _BASH.format(
        groups="|".join(groups), values="\n".join(values), commands="\n".join(commands), options="\n".join(options)
    )


def _patterns(words: str, option: _Option) -> str:
    """A pattern of the shell for a command and one of its options."""
    return "|".join(shlex.quote(f"{words} {name}") for name in option.names)


def _spellings(offer: _Offer) -> Iterator[str]:
    for option in offer.options:
        yield from option.names
    yield "--help"


def _zsh(offers: Mapping[str, _Offer]) -> str:
    """The script for zsh, which runs the script for bash."""
    first = "# Completion of cvm for zsh: source <(cvm completion zsh)\nautoload -Uz bashcompinit && bashcompinit\n"
    return first + _bash(offers).split("\n", 1)[1]


def _fish(offers: Mapping[str, _Offer]) -> str:
    """The script for fish, with a line for every command and option."""
    lines = ["# Completion of cvm for fish: cvm completion fish > ~/.config/fish/completions/cvm.fish"]
    for words, offer in offers.items():
        seen = [f"__fish_seen_subcommand_from {word}" for word in words.split()]
        if offer.commands:
            unseen = f"not __fish_seen_subcommand_from {' '.join(offer.commands)}"
            where = shlex.quote("; and ".join([*seen, unseen]))
            lines += [
                f"complete -c cvm -f -n {where} -a {name} -d {_quoted(text)}" for name, text in offer.commands.items()
            ]
        else:
            where = shlex.quote("; and ".join(seen))
            lines += [f"complete -c cvm -n {where} {_fish_option(option)}" for option in offer.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: _Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    taken = [f"-x -a '{' '.join(option.values)}'"] if option.values else ["-r"] if option.takes else []
    return " ".join([*names, *taken, f"-d {_quoted(option.help)}"])


def _quoted(text: str) -> str:
    """A text in single quotes, as fish reads them."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: Mapping[str, Callable[[Mapping[str, _Offer]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
