// Verifies receipts with the scripts of the page, outside a page: lines of JSON from stdin, an answer for each.

import { createInterface } from "node:readline";
import { Model } from "../../cvm/export/wasm/package/index.js";
import { codesOf } from "../../cvm/receipt_page/scripts/arrays.js";
import { hex, selfTest } from "../../cvm/receipt_page/scripts/hashing.js";
import { Program } from "../../cvm/receipt_page/scripts/program.js";
import { Receipt, compareRun, rootsOf } from "../../cvm/receipt_page/scripts/receipt.js";

const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));

async function answered({ receipt, program, module, runs }) {
  const claim = new Receipt(bytes(receipt));
  const known = new Program(bytes(program));
  const model = new Model(await WebAssembly.compile(bytes(module)));
  claim.checkStructure(known);
  model.restore(known.initial());
  runs.forEach((codes, number) => {
    const inputs = Object.fromEntries(Object.entries(codes).map(([name, list]) => [name, Int32Array.from(list)]));
    const before = model.state();
    const outputs = model.run(inputs);
    const nodes = model.description.nodes === undefined ? null : model.nodes();
    compareRun(known, claim.runs[number], number, rootsOf(known, { inputs, before, outputs, after: model.state() }, nodes));
  });
  return { answer: "REPRODUCED", id: hex(claim.id), digest: hex(known.digest), gas: String(known.gas) };
}

function quantised({ program, elements }) {
  const [input] = new Program(bytes(program)).inputs;
  return { codes: [...codesOf(input, [], Float64Array.from(elements))] };
}

selfTest();
for await (const line of createInterface({ input: process.stdin })) {
  const question = JSON.parse(line);
  let found;
  try {
    found = question.elements ? quantised(question) : await answered(question);
  } catch (error) {
    found = { answer: error.answer ?? "ERROR", message: error.message };
  }
  console.log(JSON.stringify(found));
}
