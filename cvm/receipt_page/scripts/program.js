// Programs: their digest and their gas, from the bytes of the file (docs/commitments.md, sections 4, 5 and 7).

import { joined, list, listRoot, number, same, sha256, shape, tag, tensorRoot, text, u32, u8 } from "./hashing.js";
import { pack, unpack } from "./wire.js";

const i64 = (value) => number(value, 8);
const product = (extents) => extents.reduce((total, extent) => total * BigInt(extent), 1n);

function value(v) {
  return joined(text(v.get("name")), shape(v.get("shape")), i64(v.get("lo")), i64(v.get("hi")));
}

function quantizer(item) {
  const z = item.get("quantizer");
  if (z === undefined) {
    return u8(0);
  }
  if (z.has("top")) {
    return joined(u8(3), i64(z.get("top")), u8(z.get("bits")));
  }
  const rounding = ["half_up", "half_even", "toward_zero"].indexOf(z.get("rounding"));
  const pairs = z.get("scale").map((scale, index) => joined(text(scale), text(z.get("offset")[index])));
  const axis = z.has("axis") ? [u8(2), u8(z.get("axis"))] : [u8(1)];
  return joined(...axis, u8(rounding), i64(z.get("lo")), i64(z.get("hi")), list(pairs));
}

function attribute(v) {
  if (typeof v === "boolean") return joined(u8(0), u8(v ? 1 : 0));
  if (typeof v === "string") return joined(u8(2), text(v));
  return Array.isArray(v) ? joined(u8(3), list(v.map(i64))) : joined(u8(1), i64(v));
}

/** The elements of a constant: an Int32Array, or a BigInt64Array for a parameter. */
export function elements(constant) {
  const width = constant.get("width");
  const bytes = constant.get("data").slice();
  const narrow = { 1: Int8Array, 2: Int16Array, 4: Int32Array, 8: BigInt64Array }[width];
  const found = new narrow(bytes.buffer);
  if (BigInt(found.length) !== product(constant.get("shape"))) {
    throw new Error(`the constant ${constant.get("name")} has ${found.length} elements`);
  }
  if (constant.get("kind") === "tensor") {
    return width === 4 ? found : Int32Array.from(found);
  }
  return width === 8 ? found : BigInt64Array.from(found, BigInt);
}

const work = {
  conv2d: (n, x, y) => product(y) * product(x[1].slice(1)),
  dense: (n, x, y) => product(y) * BigInt(x[1][1]),
  max_pool2d: (n, x, y) => product(y) * product(n.get("attributes").get("pool_size")),
  sum: (n, x) => product(x[0]),
  max: (n, x) => product(x[0]),
  non_max_suppression: (n, x) => 32n * BigInt(x[0][0]) * BigInt(x[0][1]) ** 2n,
  broadcast_div: (n, x, y) => 8n * product(y),
  cvm_precision: (n, x) => 5n * product(x[0]),
  requantize: (n, x) => BigInt((((x.length - 2) / 2) | 0) * 2) * product(x[0]),
  matmul: (n, x, y) => product(y) * BigInt(x[0].at(n.get("attributes").get("transpose_a") ? -2 : -1)),
  quotient: (n, x) => BigInt(2 * x.length + 28) * product(x[0]),
  normalize: (n, x) => 256n * product(x[0]),
};

/** A program from the bytes of its file. */
export class Program {
  constructor(bytes) {
    const found = unpack(bytes);
    if (!Array.isArray(found) || found[0] !== "cvm-program" || found[1] !== 1 || !same(pack(found), bytes)) {
      throw new Error("these are not the canonical bytes of a program");
    }
    const body = found[2];
    this.inputs = body.get("inputs");
    this.outputs = body.get("outputs");
    this.state = body.get("state");
    this.constants = body.get("constants");
    this.nodes = body.get("nodes");
    this.opSet = body.get("op_set");
    this.limits = body.get("limits");
    this.values = [
      ...this.inputs.map((item) => item.get("value")),
      ...this.constants,
      ...this.state.map((item) => item.get("value")),
      ...this.nodes.flatMap((node) => node.get("outputs")),
    ];
    this.digest = this.#digest();
    this.gas = this.#gas();
  }

  #digest() {
    let first = this.inputs.length + this.constants.length + this.state.length;
    const nodes = this.nodes.map((node) => {
      const attributes = [...node.get("attributes")].map(([name, v]) => joined(text(name), attribute(v)));
      const record = joined(
        tag("op"), text(node.get("op")), list(attributes), list(node.get("inputs").map(u32)), u32(first),
        list(node.get("outputs").map(value)),
      );
      first += node.get("outputs").length;
      return record;
    });
    const constants = this.constants.map((c) =>
      joined(tag("constant"), text(c.get("name")), tensorRoot(c.get("shape"), elements(c))),
    );
    const inputs = this.inputs.map((item) => joined(tag("input"), value(item.get("value")), quantizer(item)));
    const outputs = this.outputs.map((item) =>
      joined(tag("output"), text(item.get("name")), u32(item.get("value")), quantizer(item)),
    );
    const state = this.state.map((item) =>
      joined(tag("state"), value(item.get("value")), u32(item.get("initial")), u32(item.get("update"))),
    );
    const lists = [nodes, constants, inputs, outputs, state].map(listRoot);
    return sha256(joined(tag("program"), u32(this.opSet), text(this.limits), ...lists));
  }

  #gas() {
    let total = 0n;
    for (const node of this.nodes) {
      const x = node.get("inputs").map((index) => this.values[index].get("shape"));
      const y = node.get("outputs").map((one) => one.get("shape"));
      const own = work[node.get("op")] ?? (() => 0n);
      total += 1n + [...x, ...y].reduce((sum, one) => sum + product(one), 0n) + own(node, x, y[0]);
    }
    return total;
  }

  /** The initial state, by name. */
  initial() {
    const first = this.inputs.length;
    return Object.fromEntries(
      this.state.map((item) => [item.get("value").get("name"), elements(this.constants[item.get("initial") - first])]),
    );
  }
}
