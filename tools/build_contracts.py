"""The contracts of the judge and of the game, compiled: cvm/audit/chain/contracts -> cvm/audit/chain/artifacts.

    python tools/build_contracts.py            compile what is stale, with the compiler of npm
    python tools/build_contracts.py --check    compare sources and settings with the artifacts, without a compiler
    python tools/build_contracts.py --compare  compile everything, and compare the bytecode

An artifact has the ABI, the bytecode, the compiler's version, its settings and a digest of all of them and of the
sources, so that a stale one is found without a compiler. The compiler is the package `solc` of npm, at the version
below: it is WebAssembly and gives the same bytes on every machine. It is installed into build/solc when it is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "cvm/audit/chain/contracts"
ARTIFACTS = ROOT / "cvm/audit/chain/artifacts"
COMPILER = "0.8.37"
TOOL = ROOT / "build/solc"

_COMMON: dict[str, Any] = {
    "viaIR": True,
    "evmVersion": "cancun",
    "metadata": {"bytecodeHash": "none", "appendCBOR": False},
}
_GAME = {**_COMMON, "optimizer": {"enabled": True, "runs": 10_000}}
_JUDGE = {
    **_COMMON,
    "optimizer": {
        "enabled": True,
        "runs": 200,
        "details": {
            "yul": True,
            "yulDetails": {
                "stackAllocation": True,
                # The usual steps without F, which makes a copy of a function for each constant argument: with it, the
                # families exceed the 24,576 bytes of a contract.
                "optimizerSteps": "dhfoDgvulfnTUtnIf[xa[r]EscLMVcul [j]Trpeulxa[r]cLgvifMCTUca[r]LSsTOtfDnca[r]Iulc"
                "scCTUtgvifMCTUca[r]LSsTOtfDnca[r]Iulc]jmul[jul]VcTOculjmul:fDnTOcmu",
            },
        },
    },
}
"""The settings of the compiler for each group of contracts."""

CONTRACTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "StepJudge": ("StepJudge.sol", _JUDGE),
    "ElementwiseJudge": ("judge/families/ElementwiseJudge.sol", _JUDGE),
    "TransformJudge": ("judge/families/TransformJudge.sol", _JUDGE),
    "SumJudge": ("judge/families/SumJudge.sol", _JUDGE),
    "QuotientJudge": ("judge/families/QuotientJudge.sol", _JUDGE),
    "SearchJudge": ("judge/families/SearchJudge.sol", _JUDGE),
    "DisputeGame": ("DisputeGame.sol", _GAME),
    "ClaimBook": ("ClaimBook.sol", _GAME),
}
"""The file and the settings of each contract that has an artifact."""

_IMPORT = re.compile(r'^import\s[^"]*"([^"]+)";', re.MULTILINE)
_OUTPUTS = ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"]
_SCRIPT = """
const solc = require('solc');
let input = '';
process.stdin.on('data', part => input += part);
process.stdin.on('end', () => process.stdout.write(JSON.stringify({version: solc.version(), ...JSON.parse(solc.compile(input))})));
"""  # noqa: E501


def sources(name: str) -> dict[str, str]:
    """The sources of a contract by their paths: its file and all that this imports."""
    found: dict[str, str] = {}
    waiting = [Path(CONTRACTS[name][0])]
    while waiting:
        path = waiting.pop()
        if path.as_posix() in found:
            continue
        text = (SOURCES / path).read_text(encoding="utf-8")
        found[path.as_posix()] = text
        beside = [(SOURCES / path).parent / item for item in _IMPORT.findall(text)]
        waiting += [item.resolve().relative_to(SOURCES) for item in beside]
    return dict(sorted(found.items()))


def digest(name: str) -> str:
    """SHA-256 of the compiler's version, the settings and the sources of a contract."""
    content = json.dumps([COMPILER, CONTRACTS[name][1], sources(name)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def present() -> list[str]:
    """The contracts whose sources are here."""
    return [name for name, (path, _) in CONTRACTS.items() if (SOURCES / path).is_file()]


def artifact(name: str) -> dict[str, Any] | None:
    """The artifact of a contract, or None if there is none."""
    path = ARTIFACTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def stale(names: Iterable[str]) -> list[str]:
    """The contracts whose artifacts are missing, or are not of these sources and settings."""
    found = ((name, artifact(name)) for name in names)
    return [name for name, item in found if item is None or item.get("digest") != digest(name)]


def compiler() -> Path | None:
    """The folder in which `require('solc')` finds the compiler of the right version; None if it is not installed."""
    package = TOOL / "node_modules/solc/package.json"
    if shutil.which("node") is None or not package.is_file():
        return None
    return TOOL if json.loads(package.read_text(encoding="utf-8"))["version"] == COMPILER else None


def install() -> Path:
    """Installs the compiler from npm."""
    if shutil.which("npm") is None:
        raise SystemExit("npm is not here: install node 18 or later")
    TOOL.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--prefix", str(TOOL), "--ignore-scripts", "--no-save", f"solc@{COMPILER}"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return TOOL


def compiled(names: Iterable[str], folder: Path) -> dict[str, dict[str, Any]]:
    """The artifacts of these contracts. Contracts of equal settings are compiled in one run."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(json.dumps(CONTRACTS[name][1], sort_keys=True), []).append(name)
    made = {}
    for settings, members in groups.items():
        answer = _run(json.loads(settings), members, folder)
        for name in members:
            made[name] = _artifact(name, answer)
    return made


def _run(settings: Mapping[str, Any], names: Iterable[str], folder: Path) -> dict[str, Any]:
    texts = {path: text for name in names for path, text in sources(name).items()}
    selection = {CONTRACTS[name][0]: {name: _OUTPUTS} for name in names}
    document = {
        "language": "Solidity",
        "sources": {path: {"content": text} for path, text in texts.items()},
        "settings": {**settings, "outputSelection": selection},
    }
    command = ["node", "-e", _SCRIPT]
    done = subprocess.run(command, input=json.dumps(document), capture_output=True, text=True, check=True, cwd=folder)
    answer: dict[str, Any] = json.loads(done.stdout)
    faults = [item["formattedMessage"] for item in answer.get("errors", [])]
    if faults:
        # A warning is a fault too: it is either repaired or its cause is said in the source.
        raise SystemExit("\n".join(faults))
    return answer


def _artifact(name: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    path, settings = CONTRACTS[name]
    found = answer["contracts"][path][name]
    return {
        "name": name,
        "compiler": answer["version"],
        "settings": settings,
        "digest": digest(name),
        "abi": found["abi"],
        "bytecode": found["evm"]["bytecode"]["object"],
        "deployedBytecode": found["evm"]["deployedBytecode"]["object"],
    }


def _write(items: Mapping[str, dict[str, Any]]) -> None:
    ARTIFACTS.mkdir(exist_ok=True)
    for name, item in items.items():
        text = json.dumps(item, indent=1, sort_keys=True) + "\n"
        (ARTIFACTS / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"{name}: {len(item['deployedBytecode']) // 2:,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CONTRACT", help="only these")
    parser.add_argument("--check", action="store_true", help="only say what is stale (exit code 1)")
    parser.add_argument("--compare", action="store_true", help="compile, and say whose bytecode differs (exit code 1)")
    options = parser.parse_args()
    names = options.names or present()
    outdated = stale(names)
    if options.check:
        print(f"stale: {', '.join(outdated)}" if outdated else "every artifact is of its sources")
        return 1 if outdated else 0
    if not options.compare and not outdated:
        return 0
    folder = compiler() or install()
    made = compiled(names if options.compare else outdated, folder)
    if options.compare:
        differing = [name for name, item in made.items() if item != artifact(name)]
        print(f"differing: {', '.join(differing)}" if differing else "every artifact is what the compiler gives")
        return 1 if differing else 0
    _write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
