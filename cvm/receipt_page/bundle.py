"""Modules of JavaScript as one script: each becomes a function that returns what it exports."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["bundled"]

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)


def bundled(modules: Mapping[str, str]) -> str:
    """The modules, each after those that it imports, as one module without imports.

    Imports stand on lines of their own, and only functions, classes and constants are exported, where they are
    declared. Raises ValueError for a module that does otherwise.
    """
    parts = ["const modules = {};"]
    for name, text in modules.items():
        exports = [match[2] for match in _EXPORT.finditer(text)]
        body = _EXPORT.sub(r"\1", _IMPORT.sub(r'const \1 = modules["\2"];', text))
        if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
            raise ValueError(f"{name} imports or exports in another form")
        parts.append(f'modules["{name}"] = (() => {{\n{body.rstrip()}\nreturn {{ {", ".join(exports)} }};\n}})();')
    return "\n".join(parts) + "\n"
