"""What all pages of `cvm.report` share: one file that loads nothing, with its style and its script.

Templates escape all texts that come from files. A content security policy allows only the page's own script, by its
hash. The same values give the same bytes.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

__all__ = ["rendered"]


def rendered(template: str, **values: Any) -> str:
    """The page of a template of this package, given its style, its script and the script's hash as well."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    script = _resource("page.js")
    return environment.from_string(_resource(template)).render(
        **values,
        style=_resource("page.css"),
        script=script,
        script_hash="sha256-" + base64.b64encode(sha256(script.encode()).digest()).decode(),
    )


def _resource(name: str) -> str:
    return resources.files("cvm.report").joinpath(name).read_text("utf-8")
