// Receipts: read from bytes, and recomputed run by run (docs/commitments.md, section 8).

import { hex, joined, list, listRoot, same, sha256, tag, tensorRoot, text, u32, u64, u8 } from "./hashing.js";
import { genuine } from "./signatures.js";
import { pack, unpack } from "./wire.js";

const PARTS = ["inputs", "before", "outputs", "after"];

/** An answer other than REPRODUCED. */
export class Finding extends Error {
  constructor(answer, message) {
    super(message);
    this.answer = answer;
  }
}

const cannot = (message) => new Finding("CANNOT_RECOMPUTE", message);
const diverged = (message) => new Finding("DIVERGED", message);
const malformed = () => new Finding("REFUSED", "these are not the canonical bytes of a receipt");
const isRoot = (bytes) => bytes instanceof Uint8Array && bytes.length === 32;

function isRun(run) {
  const keys = run instanceof Map ? [...run.keys()].filter((key) => key !== "trace").sort() : [];
  return (
    keys.join() === [...PARTS].sort().join() &&
    PARTS.every((part) => Array.isArray(run.get(part)) && run.get(part).every(isRoot)) &&
    (!run.has("trace") || isRoot(run.get("trace")))
  );
}

function hasKeys(map, ...keys) {
  return map instanceof Map && [...map.keys()].sort().join() === keys.sort().join();
}

function isSignature(item) {
  return (
    hasKeys(item, "key", "signature") &&
    isRoot(item.get("key")) &&
    item.get("signature") instanceof Uint8Array &&
    item.get("signature").length === 64
  );
}

const isCount = (value) => (typeof value === "number" && value >= 0) || (typeof value === "bigint" && value >= 0n);

/** A receipt from the bytes of its file. Throws a `Finding` (REFUSED) for other bytes. */
export class Receipt {
  constructor(bytes) {
    let found;
    try {
      found = unpack(bytes);
    } catch {
      throw malformed();
    }
    if (!Array.isArray(found) || found.length !== 3 || found[0] !== "cvm-receipt" || found[1] !== 1) {
      throw malformed();
    }
    const body = found[2];
    const claim = body instanceof Map ? body.get("claim") : undefined;
    const host = body instanceof Map ? body.get("host") : undefined;
    const whole =
      hasKeys(body, "claim", "host", "signatures") &&
      hasKeys(claim, "gas", "limits", "op_set", "program", "runs") &&
      hasKeys(host, "executor", "machine", "time", "version") &&
      [...host.values(), claim.get("limits")].every((value) => typeof value === "string") &&
      isRoot(claim.get("program")) &&
      isCount(claim.get("gas")) &&
      BigInt(claim.get("gas")) < 2n ** 63n &&
      isCount(claim.get("op_set")) &&
      BigInt(claim.get("op_set")) < 2n ** 32n &&
      Array.isArray(claim.get("runs")) &&
      claim.get("runs").length > 0 &&
      claim.get("runs").every(isRun) &&
      Array.isArray(body.get("signatures")) &&
      body.get("signatures").every(isSignature);
    if (!whole || !same(pack(found), bytes)) {
      throw malformed();
    }
    const keys = body.get("signatures").map((item) => hex(item.get("key")));
    if (keys.some((key, index) => index > 0 && key <= keys[index - 1])) {
      throw malformed();
    }
    this.program = claim.get("program");
    this.opSet = claim.get("op_set");
    this.limits = claim.get("limits");
    this.gas = BigInt(claim.get("gas"));
    this.runs = claim.get("runs");
    this.host = host;
    this.signatures = body.get("signatures");
    this.traced = this.runs.some((run) => run.has("trace"));
    this.id = this.#id();
  }

  #id() {
    const records = this.runs.map((run) =>
      joined(
        tag("run"),
        ...PARTS.map((part) => list(run.get(part))),
        ...(run.has("trace") ? [u8(1), run.get("trace")] : [u8(0)]),
      ),
    );
    const head = [tag("receipt"), this.program, u32(this.opSet), text(this.limits), u64(this.gas)];
    return sha256(joined(...head, listRoot(records)));
  }

  /** What can be said without running anything. Throws a `Finding`. */
  checkStructure(program) {
    if (!same(this.program, program.digest)) {
      throw cannot(`the receipt is of the program ${hex(this.program)}, this page has ${hex(program.digest)}`);
    }
    if (this.opSet !== program.opSet) {
      throw diverged(`the program is of op-set ${program.opSet}, the receipt says ${this.opSet}`);
    }
    if (this.limits !== program.limits) {
      throw diverged(`the limits profile is ${program.limits}, the receipt says ${this.limits}`);
    }
    if (this.gas !== program.gas) {
      throw diverged(`a run costs ${program.gas} gas, the receipt says ${this.gas}`);
    }
    const counts = [program.inputs, program.state, program.outputs, program.state];
    this.runs.forEach((run, number) =>
      PARTS.forEach((part, index) => {
        if (run.get(part).length !== counts[index].length) {
          throw diverged(`run ${number + 1}: the program has ${counts[index].length} ${part}`);
        }
      }),
    );
    for (const item of this.signatures) {
      if (!genuine(item.get("key"), joined(tag("signature"), this.id), item.get("signature"))) {
        throw diverged(`the signature of ${hex(item.get("key"))} is not genuine`);
      }
    }
  }
}

/** The roots of one run, computed from its tensors. `nodes` gives them op by op, or is null if they are not given. */
export function rootsOf(program, tensors, nodes) {
  const named = (item) => item.get("value").get("name");
  const rooted = (items, values, name) =>
    items.map((item) => tensorRoot(program.values[valueOf(program, item)].get("shape"), values[name(item)]));
  const inputs = rooted(program.inputs, tensors.inputs, named);
  const before = rooted(program.state, tensors.before, named);
  const found = {
    inputs,
    before,
    outputs: rooted(program.outputs, tensors.outputs, (item) => item.get("name")),
    after: rooted(program.state, tensors.after, named),
    steps: null,
    trace: null,
  };
  if (nodes !== null) {
    found.steps = [...nodes].map((node) => node.outputs.map((one) => tensorRoot(one.shape, one.codes)));
    const log = listRoot(found.steps.map((roots, k) => joined(tag("step"), u32(k), list(roots))));
    found.trace = sha256(joined(tag("trace"), program.digest, list(inputs), list(before), log));
  }
  return found;
}

/** The number of the value of an input, a state or an output. */
function valueOf(program, item) {
  return typeof item.get("value") === "number" ? item.get("value") : program.values.indexOf(item.get("value"));
}

/** Compare a run of a receipt with computed roots. Throws a `Finding` at the first difference. */
export function compareRun(program, run, number, found) {
  const words = {
    inputs: (index) => cannot(`run ${number + 1}: input ${program.inputs[index].get("value").get("name")} is another one than the receipt names`),
    before: (index) => cannot(`run ${number + 1}: the state ${program.state[index].get("value").get("name")} before it is another one`),
    outputs: (index) => diverged(`run ${number + 1}: the program gives another ${program.outputs[index].get("name")} than the receipt claims`),
    after: (index) => diverged(`run ${number + 1}: the program leaves another ${program.state[index].get("value").get("name")} than the receipt claims`),
  };
  for (const part of PARTS) {
    run.get(part).forEach((root, index) => {
      if (!same(root, found[part][index])) {
        throw words[part](index);
      }
    });
  }
  if (run.has("trace") && found.trace !== null && !same(run.get("trace"), found.trace)) {
    throw diverged(`run ${number + 1}: outputs and state are as claimed, but a tensor on the way is not`);
  }
}
