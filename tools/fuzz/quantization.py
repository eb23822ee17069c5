"""Fuzzer of quantization files: random lines of every algorithm, most of them then damaged.

python -m tools.fuzz.quantization --count 100000 --seed 1
"""

from __future__ import annotations

import random
import sys
from functools import lru_cache

from cvm.frontends.nnef.checker import check_document
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.parser import decode, parse_document
from cvm.frontends.nnef.quantization_file import read_quantization
from cvm.frontends.nnef.values import FlatGraph
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_text

__all__ = ["FUZZER"]

_DOCUMENT = """version 1.0;
graph net( x ) -> ( y )
{
    x = external(shape = [1,2,4,4]);
    w = variable(shape = [3,2,3,3], label = 'w');
    i = constant<integer>(shape = [1], value = [1]);
    y = conv(x, w, 0.0);
}
"""
_LOW, _HIGH = ("0.0", "-1.5", "-1e-3", "-(1.0 + 1.0)"), ("1.0", "2.0 ^ 3.0", "0.1", "scalar(length_of('ab'))")
_SCALARS = ("0.0", "1.0", "-1.5", "1e-3", "2.0 ^ 3.0", "-(1.0 + 1.0)", "1.0 / 3.0", "scalar(length_of('ab'))", "1e300")
_INTEGERS = ("8", "1", "16", "0", "-1", "4 * 2", "length_of([1,2,3])", "32", "65")
_LOGICALS = ("true", "false", "!true", "1 < 2")


@lru_cache(maxsize=1)
def _graph() -> FlatGraph:
    tree = parse_document(_DOCUMENT)
    return flatten_document(tree, check_document(tree))


def _line(random_: random.Random, tensor: str) -> str:
    def some(likely: tuple[str, ...], any_: tuple[str, ...]) -> str:
        return random_.choice(likely if random_.random() < 0.9 else any_)

    def low() -> str:
        return some(_LOW, _SCALARS)

    def high() -> str:
        return some(_HIGH, _SCALARS)

    def integer() -> str:
        return some(("8", "4 * 2", "7"), _INTEGERS)

    def logical() -> str:
        return random_.choice(_LOGICALS)

    def maybe_list(item: str) -> str:
        return item if random_.random() < 0.6 else f"[{', '.join([item] * random_.choice((1, 2, 3, 4)))}]"

    algorithm = random_.choice(("linear", "linear", "logarithmic", "zero_point_linear", "min_max_linear"))
    common = {"bits": integer(), "signed": logical(), "symmetric": logical()}
    arguments = {
        "linear": {"min": low(), "max": high(), "bits": integer()},
        "logarithmic": {"max": high(), "bits": integer()},
        "zero_point_linear": {"zero_point": maybe_list(integer()), "scale": maybe_list(high()), **common},
        "min_max_linear": {"min": maybe_list(low()), "max": maybe_list(high()), **common},
    }[algorithm]
    written = ", ".join(f"{name} = {value}" for name, value in arguments.items())
    return f'"{tensor}": {algorithm}_quantize({written});\n'


def make(random_: random.Random) -> bytes:
    """A quantization file of up to four lines, two in three damaged."""
    tensors = random_.sample("xwy", random_.randrange(1, 4))
    if random_.random() < 0.1:
        tensors.append(random_.choice("xwyi"))
    text = "".join(_line(random_, tensor) for tensor in tensors).encode()
    return text if random_.random() < 1 / 3 else mutate_text(random_, text, random_.choice((1, 1, 2, 4)))


def examine(case: bytes) -> str:
    """Read a quantization file."""
    read_quantization(decode(case), _graph())
    return "valid"


FUZZER = Fuzzer("tools.fuzz.quantization", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
