"""The page ``docs/api.md``: the public names of Python, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from typing import Any

import cvm
from cvm.audit import Receipt, Verdict
from cvm.calibration import Calibration, Settings
from cvm.errors import CvmError, Location
from cvm.generation import Generation, Generator, Request
from cvm.ports import Port
from cvm.program import Program
from cvm.quantizing import Goal, Quantized
from tools.generated_pages.page import Page

__all__ = ["CLASSES", "FUNCTIONS", "PAGE", "members", "page"]

INTRODUCTION = """\
# Python

Generated from signatures and docstrings by `tools/generate_pages.py`; do not edit.

`import cvm` takes some hundredths of a second: each name is imported when it is first used. Names that are on no page
are not public. [webnn.md](webnn.md) and [openvx.md](openvx.md) describe graphs that are built in Python,
[errors.md](errors.md) lists the errors, and [threads.md](threads.md) says what several threads may do at once.

```python
import numpy as np

import cvm
from cvm.demo import IMAGES, MODEL

program = cvm.compile(MODEL)
session = cvm.Session(program)
with np.load(IMAGES) as data:
    images = data["image"]

result = session.run({"image": images}, receipt="trace")
print(result["probs"][0])  # the int32 codes
print(result.real("probs")[0].round(3))  # the real numbers that they stand for

verdict = cvm.verify(result.receipt, program, {"image": images})
print(verdict.answer, "at level", verdict.level)
```

```text
[  0   0   1   0   1   2   0 248   1   2]
[0.    0.    0.004 0.    0.004 0.008 0.    0.973 0.004 0.008]
REPRODUCED at level trace
```

You can run one operation by itself, on any executor:

```python
import cvm

print(cvm.run_op("broadcast_div", [[7, -7, 7, -7], [2, 2, -2, 0]], executor="formal"))
```

```text
[array([ 3, -3, -3,  0], dtype=int32)]
```
"""

FUNCTIONS: tuple[Callable[..., Any], ...] = tuple(
    getattr(cvm, name) for name in cvm.__all__ if inspect.isfunction(getattr(cvm, name))
)
"""The functions of the package."""

CLASSES: tuple[type, ...] = (
    cvm.Session, Port, cvm.Result, Program, Receipt, Verdict, Quantized, Settings, Goal, Calibration, Generator,
    Request, Generation, CvmError, Location,
)  # fmt: skip
"""The classes of the package, and the classes that its functions take and return."""


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION, "\n## Functions\n"]
    for function in FUNCTIONS:
        name = f"cvm.{function.__name__}"
        lines.append(f"\n### {name}\n\n{signature(function, name)}\n{words(function)}\n")
    lines.append("\n## Classes\n")
    for kind in CLASSES:
        lines.append(f"\n### {where(kind)}\n\n{constructor(kind)}{words(kind)}\n")
        lines += [f"\n* `{one.name}: {typed(one.type)}`" for one in fields_of(kind)]
        lines += ["\n"] if fields_of(kind) else []
        for name, member in members(kind):
            if isinstance(member, property):
                lines.append(f"\n**`.{name}`** {words(member)}\n")
            else:
                lines.append(f"\n**`.{name}`**\n\n{signature(member, f'.{name}')}\n{words(member)}\n")
    return "".join(lines)


def where(kind: type) -> str:
    """The name under which callers import a class."""
    if getattr(cvm, kind.__name__, None) is kind:
        return f"cvm.{kind.__name__}"
    return f"{kind.__module__}.{kind.__name__}"


def constructor(kind: type) -> str:
    """The signature of a class that callers construct; empty for errors and for classes that only functions return."""
    made = kind in (cvm.Session, Settings, Goal, Generator)
    return signature(kind, where(kind)) + "\n" if made else ""


def fields_of(kind: type) -> list[Field[Any]]:
    """The public fields of a data class, if its signature is not shown."""
    shown = not is_dataclass(kind) or constructor(kind)
    return [] if shown else [one for one in fields(kind) if not one.name.startswith("_")]


def typed(annotation: Any) -> str:
    """A type as Python source writes it."""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties with a docstring that a class defines, or a data class that it extends."""
    extended = [base for base in kind.__bases__ if is_dataclass(base)]
    for name, member in itertools.chain.from_iterable(vars(one).items() for one in (*extended, kind)):
        plain = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not name.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)) and plain.__doc__:
            yield name, plain


def signature(item: Callable[..., Any], name: str) -> str:
    """A signature as a text block; if it does not fit on one line, it has one parameter per line."""
    found = inspect.signature(item)
    pieces: list[str] = []
    for one in found.parameters.values():
        if one.kind is one.KEYWORD_ONLY and "*" not in pieces:
            pieces.append("*")
        default = ".." if str(one.default) == "<factory>" else repr(one.default)
        if one.name != "self":
            shown = "" if one.default is one.empty else f" = {default}"
            pieces.append(f"{one.name}: {typed(one.annotation)}{shown}")
    given = found.return_annotation
    result = "" if given in (found.empty, None, "None") else f" -> {typed(given)}"
    line = f"{name}({', '.join(pieces)}){result}"
    if len(line) > 110:
        line = f"{name}(\n" + "".join(f"    {piece},\n" for piece in pieces) + f"){result}"
    return f"<!-- not run: a signature -->\n```text\n{line}\n```\n"


def words(item: Any) -> str:
    """A docstring as Markdown: code in single backticks, indented lists as they are."""
    text = inspect.getdoc(item) or ""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return textwrap.dedent(text)


PAGE = Page("api.md", page)
