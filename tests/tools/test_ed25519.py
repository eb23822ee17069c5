"""The product's Ed25519 and that of the tool that stands alone are one text, but for types."""

import ast
from pathlib import Path

import cvm.audit.ed25519 as module

ROOT = Path(__file__).parents[2]
NAMES = ("P", "L", "D", "point", "plus", "times", "BASE", "genuine")


def plain(path: Path) -> dict[str, str]:
    """The statements that define the names, without annotations."""
    found = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign):
            name = getattr(node.targets[0], "id", "")
        elif isinstance(node, ast.FunctionDef):
            name, node.returns = node.name, None
            for argument in node.args.args:
                argument.annotation = None
        else:
            continue
        if name in NAMES:
            assert name not in found, f"{path} defines {name} twice"
            found[name] = ast.dump(node)
    return found


def test_the_tool_has_the_text_of_the_product() -> None:
    product, tool = plain(Path(module.__file__)), plain(ROOT / "cvm" / "standalone" / "verify_receipt.py")
    assert tuple(product) == tuple(tool) == NAMES
    for name in NAMES:
        assert product[name] == tool[name], name
