"""``cvm cache``: the cache of compiled code on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cvm.cli.declaration import Command, Group
from cvm.cli.options import Json
from cvm.cli.output import say, show
from cvm.errors import Invalid, Location

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["GROUP", "cache_document", "in_words"]


def shown(as_json: Json = False) -> int:
    """Show where compiled code is kept and how much of it, or why none is kept.

    CVM_CACHE names another folder; if it is empty, nothing is kept.
    """
    document = cache_document()
    return show(document, lambda console: _render(console, document), as_json)


def cleared(as_json: Json = False) -> int:
    """Delete all compiled code that is kept. Programs are compiled again when they are next run; no result changes."""
    from cvm.executors.native.runtime import cache

    document = cache_document()
    if document["trouble"] is not None:
        raise Invalid("cache.unusable", f"no compiled code is kept: {document['trouble']}")
    try:
        files, size = cache.clear()
    except OSError as error:
        message = f"cannot be deleted: {error.strerror or error}"
        raise Invalid("cache.unusable", message, Location(document["folder"])) from None
    document |= {"files": files, "bytes": size}
    words = f"deleted {files} files, {size} bytes, of {document['folder']}"
    return show(document, lambda console: say(console, words), as_json)


def cache_document() -> dict[str, Any]:
    """The folder of compiled code, the number of its files and bytes, and why it is not used (None: it is used)."""
    from cvm.executors.native.runtime import cache

    trouble, where = cache.trouble(), cache.folder()
    files, size = cache.kept() if trouble is None else (0, 0)
    return {"folder": None if where is None else str(where), "files": files, "bytes": size, "trouble": trouble}


def in_words(document: dict[str, Any]) -> str:
    """The folder and its size in words, or why it is not used."""
    if document["trouble"] is not None:
        return f"not used: {document['trouble']}"
    return f"{document['folder']} ({document['files']} files, {document['bytes']} bytes)"


def _render(console: Console, document: dict[str, Any]) -> None:
    say(console, f"cache  {in_words(document)}")
    say(console, "`cvm cache clear` deletes it; CVM_CACHE names another folder, or none")


GROUP = Group(
    "Show or delete the compiled code that is kept on this machine.",
    {
        "show": Command(shown, ("cvm cache show",)),
        "clear": Command(cleared, ("cvm cache clear",)),
    },
)
