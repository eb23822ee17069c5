// Runs exported modules for tools/wasm_driver.py: a module and the inputs of some runs in a frame, tensors in a frame.

import { Model } from "../cvm/export/wasm/package/index.js";
import { pack, unpack } from "../cvm/receipt_page/scripts/wire.js";
import { framed, frames } from "./frames.mjs";

function bytes(codes) {
  return new Uint8Array(codes.buffer, codes.byteOffset, codes.byteLength);
}

async function ran(question) {
  const model = new Model(await WebAssembly.compile(question.get("module")));
  return question.get("feeds").map((feed) => {
    const inputs = Object.fromEntries([...feed].map(([name, data]) => [name, new Int32Array(data.slice().buffer)]));
    const outputs = new Map(Object.entries(model.run(inputs)).map(([name, codes]) => [name, bytes(codes)]));
    const found = new Map([["outputs", outputs]]);
    if (model.description.nodes !== undefined) {
      const tensors = [...model.nodes()].flatMap((node) => node.outputs);
      found.set("tensors", new Map(tensors.map((one) => [one.name, bytes(one.codes)])));
    }
    return found;
  });
}

for await (const frame of frames(process.stdin)) {
  let answer;
  try {
    answer = new Map([["runs", await ran(unpack(frame))]]);
  } catch (error) {
    answer = new Map([["error", `${error.name}: ${error.message}`]]);
  }
  process.stdout.write(framed(pack(answer)));
}
