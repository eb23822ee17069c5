// A program of cvm as WebAssembly: integers in, the same integers out on every machine.
// Works in browsers, Node and Deno, and needs nothing else.

const SECTION = "cvm";
const VERSION = 1;
const LEAST = -(2 ** 31) + 1;
const MOST = 2 ** 31 - 1;

/** An input that the program does not take, or a module that is none of cvm. */
export class CvmError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "CvmError";
    this.code = code;
  }
}

/** What a module says of itself: its digest, inputs, outputs and state, and where they lie in its memory. */
export function describe(module) {
  const [section] = WebAssembly.Module.customSections(module, SECTION);
  if (section === undefined) {
    throw new CvmError("wasm.module", "this is no module that cvm has exported");
  }
  const found = JSON.parse(new TextDecoder().decode(section));
  if (found.version !== VERSION) {
    throw new CvmError("wasm.version", `the module has version ${found.version}, expected ${VERSION}`);
  }
  return found;
}

function size(tensor) {
  return tensor.shape.reduce((product, extent) => product * extent, 1);
}

/** A program that is ready to run. It keeps state, if the program has any, from run to run. */
export class Model {
  #memory;
  #run;
  #initial;

  constructor(module) {
    this.description = describe(module);
    this.digest = this.description.digest;
    const instance = new WebAssembly.Instance(module, {});
    this.#memory = instance.exports.memory;
    this.#run = instance.exports.run;
    this.#initial = this.state();
  }

  #view(tensor) {
    return new Int32Array(this.#memory.buffer, tensor.at, size(tensor));
  }

  #write(tensor, codes, what) {
    const count = size(tensor);
    const integers =
      (ArrayBuffer.isView(codes) && !(codes instanceof DataView) && !/^(Float|Big)/.test(codes.constructor.name)) ||
      Array.isArray(codes);
    if (!integers) {
      throw new CvmError("wasm.type", `${what} ${tensor.name}: expected an array of integers, such as an Int32Array`);
    }
    if (codes.length !== count) {
      const words = `${what} ${tensor.name}: expected ${count} codes (shape ${tensor.shape.join(" x ")})`;
      throw new CvmError("wasm.shape", `${words}, found ${codes.length}`);
    }
    if (!(codes instanceof Int32Array)) {
      for (let i = 0; i < count; i++) {
        if (!Number.isInteger(codes[i]) || codes[i] < LEAST || codes[i] > MOST) {
          throw new CvmError("wasm.range", `${what} ${tensor.name}: element ${i} is ${codes[i]}, no 32-bit integer`);
        }
      }
    }
    this.#view(tensor).set(codes);
  }

  #refused(tensor, what) {
    const found = this.#view(tensor).findIndex((code) => code < tensor.lo || code > tensor.hi);
    const words = `${what} ${tensor.name}: element ${found} is ${this.#view(tensor)[found]}`;
    return new CvmError("wasm.range", `${words}, expected integers from ${tensor.lo} to ${tensor.hi}`);
  }

  /** Run the program once: codes by the names of the inputs, codes by the names of the outputs. */
  run(inputs = {}) {
    const { inputs: taken, outputs, state } = this.description;
    const unknown = Object.keys(inputs).find((name) => !taken.some((input) => input.name === name));
    if (unknown !== undefined) {
      throw new CvmError("wasm.inputs", `there is no input ${unknown}`);
    }
    for (const input of taken) {
      if (!Object.hasOwn(inputs, input.name)) {
        throw new CvmError("wasm.inputs", `input ${input.name} is missing`);
      }
      this.#write(input, inputs[input.name], "input");
    }
    const bad = this.#run();
    if (bad >= 0) {
      throw bad < taken.length
        ? this.#refused(taken[bad], "input")
        : this.#refused(state[bad - taken.length], "state");
    }
    const found = Object.fromEntries(outputs.map((output) => [output.name, this.#view(output).slice()]));
    for (const kept of state) {
      this.#view(kept).set(new Int32Array(this.#memory.buffer, kept.next, size(kept)));
    }
    return found;
  }

  /** The tensors of the last run, node by node, of a module that was exported with --trace. */
  *nodes() {
    if (this.description.nodes === undefined) {
      throw new CvmError("wasm.trace", "the module was exported without --trace");
    }
    for (const node of this.description.nodes) {
      yield { op: node.op, outputs: node.outputs.map((one) => ({ ...one, codes: this.#view(one).slice() })) };
    }
  }

  /** A copy of the state, by name. */
  state() {
    return Object.fromEntries(this.description.state.map((kept) => [kept.name, this.#view(kept).slice()]));
  }

  /** Go on from a state that `state` has returned. */
  restore(state) {
    for (const kept of this.description.state) {
      if (!Object.hasOwn(state, kept.name)) {
        throw new CvmError("wasm.inputs", `state ${kept.name} is missing`);
      }
      this.#write(kept, state[kept.name], "state");
    }
  }

  /** Begin again with the initial state. */
  reset() {
    this.restore(this.#initial);
  }
}

async function bytesOf(source) {
  if (!(source instanceof URL)) {
    return source;
  }
  if (source.protocol === "file:" && globalThis.process?.versions?.node !== undefined) {
    const { readFile } = await import("node:fs/promises");
    return readFile(source);
  }
  const response = await fetch(source);
  if (!response.ok) {
    throw new CvmError("wasm.fetch", `${source}: ${response.status} ${response.statusText}`);
  }
  return response.arrayBuffer();
}

/** Load a program: the module beside this file, or the given bytes, URL or compiled module. */
export async function load(source = new URL("./model.wasm", import.meta.url)) {
  const given = await bytesOf(source);
  return new Model(given instanceof WebAssembly.Module ? given : await WebAssembly.compile(given));
}
