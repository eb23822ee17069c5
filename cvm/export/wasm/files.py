"""An exported module with the files around it: a package of npm, for browsers, Node and Deno."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from cvm.errors import Invalid
from cvm.export.wasm.writing import Module, module
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["Exported", "exported", "loader"]

_DEFAULT = '"./model.wasm"'


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of a package, and the module among them."""

    files: Mapping[str, bytes]
    module: Module


def loader() -> str:
    """The JavaScript that loads modules."""
    return (resources.files("cvm.export.wasm") / "package" / "index.js").read_text("utf-8")


def exported(verified: VerifiedProgram, name: str = "model", traced: bool = False) -> Exported:
    """A program as a package: the module ``NAME.wasm``, a script that loads it, its types, and ``package.json``.

    ``traced``: the module gives every tensor. Raises `Invalid` (``export.name``) for a name that npm or C has no place
    for, and what `module` raises.
    """
    if re.fullmatch("[a-z][a-z0-9_]{0,30}", name) is None:
        message = f"expected a name of small letters, digits and _ that begins with a letter, found {name!r}"
        raise Invalid("export.name", message)
    made = module(verified, traced)
    script = loader()
    assert script.count(_DEFAULT) == 1
    files = {
        f"{name}.wasm": made.code,
        "index.js": script.replace(_DEFAULT, f'"./{name}.wasm"').encode(),
        "index.d.ts": _types(made.description).encode(),
        "package.json": _package(name, made.description).encode(),
    }
    return Exported(files, made)


def _package(name: str, said: Mapping[str, Any]) -> str:
    content = {
        "name": name,
        "version": "1.0.0",
        "description": f"The program {said['digest']} of cvm, with the same results as everywhere.",
        "type": "module",
        "exports": {
            ".": {"types": "./index.d.ts", "default": "./index.js"},
            f"./{name}.wasm": f"./{name}.wasm",
        },
        "types": "./index.d.ts",
        "files": ["index.js", "index.d.ts", f"{name}.wasm"],
        "sideEffects": False,
    }
    return json.dumps(content, indent=2) + "\n"


def _types(said: Mapping[str, Any]) -> str:
    """The types of the script, with the inputs and outputs of this program."""
    inputs = "".join(f"  {_port(one)}\n  {json.dumps(one['name'])}: Codes;\n" for one in said["inputs"])
    outputs = "".join(f"  {_port(one)}\n  {json.dumps(one['name'])}: Int32Array;\n" for one in said["outputs"])
    states = "".join(f"  {_port(one)}\n  {json.dumps(one['name'])}: Int32Array;\n" for one in said["state"])
    return _TYPES.format(inputs=inputs, outputs=outputs, states=states)


def _port(tensor: Mapping[str, Any]) -> str:
    words = f"Shape {' x '.join(map(str, tensor['shape']))}, row-major; integers from {tensor['lo']} to {tensor['hi']}."
    if "scale" in tensor:
        words += f" A code q stands for {tensor['offset']} + {tensor['scale']} * q."
    return f"/** {words} */"


_TYPES = """/** Integers; fractions and numbers outside the interval of a tensor are refused. */
export type Codes =
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | number[];

export interface Inputs {{
{inputs}}}

export interface Outputs {{
{outputs}}}

export interface State {{
{states}}}

export interface Tensor {{
  name: string;
  shape: number[];
  lo: number;
  hi: number;
}}

export interface Described extends Tensor {{
  at: number;
  /** A code q stands for offset + scale * q, exact fractions. */
  scale?: string;
  offset?: string;
}}

export interface Description {{
  version: number;
  digest: string;
  op_set: number;
  inputs: Described[];
  outputs: Described[];
  state: Described[];
}}

/** What is refused: a module that is none of cvm, or an input that the program does not take. */
export class CvmError extends Error {{
  code: string;
}}

/** A program that is ready to run. It keeps state, if the program has any, from run to run. */
export class Model {{
  constructor(module: WebAssembly.Module);
  readonly digest: string;
  readonly description: Description;
  /** Run the program once. */
  run(inputs: Inputs): Outputs;
  /** The tensors of the last run, node by node, of a module that was exported with --trace. */
  nodes(): Generator<{{ op: string; outputs: (Tensor & {{ codes: Int32Array }})[] }}>;
  /** A copy of the state. */
  state(): State;
  /** Go on from a state that `state` has returned. */
  restore(state: State): void;
  /** Begin again with the initial state. */
  reset(): void;
}}

/** What a module says of itself. */
export function describe(module: WebAssembly.Module): Description;

/** Load the program beside the script, or another module of the same program. */
export function load(source?: URL | BufferSource | WebAssembly.Module): Promise<Model>;
"""
