// Answers test vectors (spec_vectors/README.md, section 5) with programs that cvm exports as WebAssembly:
//
//     cvm vectors check spec_vectors --command "node tools/wasm_vectors.mjs"
//
// tools/wasm_exporter.py, run by $PYTHON or python3, makes the modules; their results are computed here. An op is
// applied to its inputs as constants and, if the verifier accepts it, as inputs; both results must be the same.

import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Model } from "../cvm/export/wasm/package/index.js";
import { pack, unpack } from "../cvm/receipt_page/scripts/wire.js";
import { framed, frames } from "./frames.mjs";

function codes(tensor) {
  const [, , data] = tensor;
  return new Int32Array(data.slice().buffer);
}

function tensor(shape, values) {
  return ["int32", shape, new Uint8Array(values.buffer, values.byteOffset, values.byteLength)];
}

function fed(inputs) {
  return Object.fromEntries([...inputs].map(([name, one]) => [name, codes(one)]));
}

async function modelOf(bytes) {
  return new Model(await WebAssembly.compile(bytes));
}

async function applied(program) {
  const model = await modelOf(program.get("module"));
  const found = model.run(fed(program.get("inputs")));
  return model.description.outputs.map((output) => tensor(output.shape, found[output.name]));
}

async function op(made) {
  const [outputs, ...others] = await Promise.all(made.get("programs").map(applied));
  for (const again of others) {
    if (Buffer.compare(pack(again), pack(outputs)) !== 0) {
      return { verdict: "error", message: "another result for inputs of the same values" };
    }
  }
  return { verdict: "value", outputs };
}

async function program(made, question) {
  const model = await modelOf(made.get("module"));
  const runs = question.get("runs").map((inputs) => {
    const found = new Map();
    for (const kept of model.description.state) {
      found.set(kept.name, tensor(kept.shape, model.state()[kept.name]));
    }
    const given = fed(inputs);
    const outputs = model.run(given);
    for (const input of model.description.inputs) {
      found.set(input.name, tensor(input.shape, given[input.name]));
    }
    for (const node of model.nodes()) {
      node.outputs.forEach((one) => found.set(one.name, tensor(one.shape, one.codes)));
    }
    for (const output of model.description.outputs) {
      if (!found.has(output.value)) {
        found.set(output.value, tensor(output.shape, outputs[output.name]));
      }
    }
    return found;
  });
  return { verdict: "value", runs, digest: model.digest };
}

async function answered(made, question) {
  if (!made.has("module") && !made.has("programs")) {
    return Object.fromEntries(made);
  }
  try {
    return await (made.has("programs") ? op(made) : program(made, question));
  } catch (error) {
    return { verdict: "error", message: `${error.name}: ${error.message}` };
  }
}

const exporter = spawn(process.env.PYTHON ?? "python3", ["-m", "tools.wasm_exporter"], {
  cwd: fileURLToPath(new URL("..", import.meta.url)),
  stdio: ["pipe", "pipe", "inherit"],
});
const made = frames(exporter.stdout);
for await (const frame of frames(process.stdin)) {
  const question = unpack(frame);
  exporter.stdin.write(framed(frame));
  const { value, done } = await made.next();
  const answer = done ? { verdict: "error", message: "the exporter ended" } : await answered(unpack(value), question);
  process.stdout.write(framed(pack(new Map(Object.entries({ id: question.get("id"), ...answer })))));
}
exporter.stdin.end();
