// The page: what the receipt claims, the runs again in this browser, and the answer.

import { Model } from "./index.js";
import { codesOf, readNpy } from "./arrays.js";
import { hex, same, selfTest, sha256 } from "./hashing.js";
import { Program } from "./program.js";
import { Finding, Receipt, compareRun, rootsOf } from "./receipt.js";

const SHOWN = 24;
const TOP = 5;
const TYPES = { int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array, int32: Int32Array };
const MEANINGS = {
  REPRODUCED: "This browser ran the program again on the inputs in this page, and everything that the receipt claims came out the same.",
  DIVERGED: "The claim is false: the program gives something else, or the receipt contradicts itself.",
  CANNOT_RECOMPUTE: "The claim was neither confirmed nor refuted: something that the receipt names is not what this page has.",
  REFUSED: "This is not a receipt.",
};

const byId = (id) => document.getElementById(id);

function bytesOf(id) {
  const found = atob(byId(id).textContent.trim());
  return Uint8Array.from(found, (character) => character.charCodeAt(0));
}

function element(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => found.setAttribute(key, value));
  found.append(...children);
  return found;
}

function size(tensor) {
  return tensor.get("shape").reduce((total, extent) => total * extent, 1);
}

/** Let the browser draw and answer for a moment. */
function pause() {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

const facts = JSON.parse(byId("facts").textContent);
const page = { program: null, module: null, model: null, runs: [], receipt: null, begin: null };

// Running --------------------------------------------------------------------------------------------------------------

function shippedRuns() {
  const columns = facts.inputs.map(({ name, type, id }) => [name, new TYPES[type](bytesOf(id).buffer)]);
  const cycles = facts.samples.flatMap((count) => Array.from({ length: count }, (_, cycle) => cycle === 0));
  return cycles.map((first, number) => {
    const inputs = Object.fromEntries(
      columns.map(([name, codes], index) => {
        const count = size(page.program.inputs[index].get("value"));
        return [name, Int32Array.from(codes.subarray(number * count, (number + 1) * count))];
      }),
    );
    return { first, inputs };
  });
}

/** The tensors and roots of one run; the model goes on from its state. */
function recomputed({ first, inputs }) {
  if (first) {
    page.model.restore(page.begin);
  }
  const before = page.model.state();
  const outputs = page.model.run(inputs);
  const tensors = { inputs, before, outputs, after: page.model.state() };
  const nodes = page.receipt.traced && page.model.description.nodes !== undefined ? page.model.nodes() : null;
  return { outputs, roots: rootsOf(page.program, tensors, nodes) };
}

async function verified() {
  const started = performance.now();
  const found = [];
  let finding = null;
  const attempt = (what) => {
    try {
      what();
    } catch (error) {
      if (!(error instanceof Finding)) {
        throw error;
      }
      finding ??= error;
    }
  };
  attempt(() => page.receipt.checkStructure(page.program));
  if (page.receipt.runs.length !== page.runs.length) {
    const words = `the receipt is of ${page.receipt.runs.length} runs, this page has the inputs of ${page.runs.length}`;
    finding ??= new Finding("CANNOT_RECOMPUTE", words);
  }
  for (const [number, run] of page.runs.entries()) {
    said("Checking …", `run ${number + 1} of ${page.runs.length}`, "checking");
    await pause();
    const one = recomputed(run);
    found.push(one);
    if (finding === null) {
      attempt(() => compareRun(page.program, page.receipt.runs[number], number, one.roots));
    }
  }
  return { found, finding, seconds: (performance.now() - started) / 1000 };
}

// Showing --------------------------------------------------------------------------------------------------------------

function said(word, reason, kind) {
  const box = byId("verdict");
  box.dataset.kind = kind;
  byId("word").textContent = word;
  byId("reason").textContent = reason;
}

function rows(list, entries) {
  list.replaceChildren(...entries.flatMap(([term, content]) => [element("dt", {}, term), element("dd", {}, content)]));
}

function code(words) {
  return element("code", {}, words);
}

function claim() {
  const { receipt } = page;
  rows(byId("claim"), [
    ["Receipt", code(hex(receipt.id))],
    ["Program", code(hex(receipt.program))],
    ["Runs", String(receipt.runs.length)],
    ["Covers", receipt.traced ? "inputs, outputs, state, and every tensor on the way" : "inputs, outputs and state"],
    ["Cost of a run", `${receipt.gas} gas, op-set ${receipt.opSet}, limits ${receipt.limits}`],
    ["Signed by", receipt.signatures.length ? receipt.signatures.map((item) => hex(item.get("key"))).join(", ") : "nobody"],
    ["The host said", `${[...receipt.host.values()].filter(Boolean).join(", ") || "nothing"} (nobody vouches for this)`],
  ]);
}

/** An input as an image, if its shape is that of one. */
function picture(value, codes) {
  const extents = value.get("shape");
  const [channels, height, width] = extents.slice(-3);
  if (extents.length < 3 || ![1, 3].includes(channels) || extents.slice(0, -3).some((extent) => extent !== 1) || width < 4) {
    return null;
  }
  const canvas = element("canvas", { width, height, role: "img", "aria-label": `${value.get("name")}, ${width} by ${height}` });
  const image = new ImageData(width, height);
  const [lo, hi] = [value.get("lo"), value.get("hi")];
  for (let i = 0; i < width * height; i++) {
    for (let channel = 0; channel < 3; channel++) {
      const at = (channels === 1 ? 0 : channel) * width * height + i;
      image.data[4 * i + channel] = (255 * (codes[at] - lo)) / (hi - lo);
    }
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function listed(codes) {
  return element("p", { class: "codes" }, [...codes.subarray(0, 16)].join(", ") + (codes.length > 16 ? ", …" : ""));
}

function given(value, codes) {
  const name = value.get("name");
  return element("figure", {}, picture(value, codes) ?? listed(codes), element("figcaption", {}, name));
}

/** A rational in words, for people. */
function decimal(rational) {
  const [n, d = 1n] = rational.split("/").map(BigInt);
  return Number((n * 10n ** 12n) / d) / 1e12;
}

function real(output, code) {
  const z = output.get("quantizer");
  if (z === undefined || !z.has("scale") || z.has("axis")) {
    return String(code);
  }
  return String(Number((decimal(z.get("offset")[0]) + decimal(z.get("scale")[0]) * code).toPrecision(3)));
}

/** An output: its greatest elements if it can be scores of classes, else its first codes. */
function result(output, codes) {
  const name = output.get("name");
  const extents = page.program.values[output.get("value")].get("shape");
  if (codes.length < 2 || Math.max(...extents) !== codes.length) {
    return element("figure", {}, listed(codes), element("figcaption", {}, name));
  }
  const order = [...codes.keys()].sort((a, b) => codes[b] - codes[a] || a - b).slice(0, TOP);
  const least = codes.reduce((a, b) => Math.min(a, b));
  const most = Math.max(codes[order[0]] - least, 1);
  const labels = facts.labels.length === codes.length ? facts.labels : null;
  const items = order.map((index) => {
    const meter = element("meter", { min: "0", max: String(most), value: String(codes[index] - least) });
    meter.setAttribute("aria-hidden", "true");
    const words = labels === null ? `class ${index}` : labels[index];
    return element("li", {}, element("span", { class: "class" }, words), meter, element("span", {}, real(output, codes[index])));
  });
  return element("figure", {}, element("ol", { class: "classes" }, ...items), element("figcaption", {}, name));
}

function card(number, run, one) {
  const inputs = page.program.inputs.map((item) => given(item.get("value"), run.inputs[item.get("value").get("name")]));
  const outputs = page.program.outputs.map((item) => result(item, one.outputs[item.get("name")]));
  const title = element("h3", {}, `Run ${number + 1}`);
  return element("li", { class: "card" }, title, element("div", { class: "ports" }, ...inputs, ...outputs));
}

function details(found) {
  const lines = found.slice(0, SHOWN).flatMap(({ roots }, number) => {
    const claimed = page.receipt.runs[number];
    const parts = ["inputs", "before", "outputs", "after"].flatMap((part) =>
      roots[part].map((root, index) => [`${part} ${index + 1}`, root, claimed?.get(part)[index]]),
    );
    const trace = roots.trace === null ? [] : [["trace", roots.trace, claimed?.get("trace")]];
    return [...parts, ...trace].map(([what, root, expected]) => {
      const equal = expected !== undefined && same(root, expected);
      const cells = [`${number + 1}`, what, hex(root), equal ? "as claimed" : "differs"];
      return element("tr", {}, ...cells.map((words, index) => element("td", index === 2 ? { class: "root" } : {}, words)));
    });
  });
  byId("roots").replaceChildren(...lines);
}

function show({ found, finding, seconds }) {
  const answer = finding === null ? "REPRODUCED" : finding.answer;
  const took = `${page.runs.length} run${page.runs.length === 1 ? "" : "s"} in ${seconds.toFixed(2)} s`;
  const untraced = page.receipt.traced && page.model.description.nodes === undefined;
  const left = untraced ? " The receipt also covers every tensor on the way; this page was made without them." : "";
  said(answer, `${finding === null ? took : `${finding.message}. ${took}`}. ${MEANINGS[answer]}${left}`, answer.toLowerCase());
  claim();
  byId("runs").replaceChildren(...found.slice(0, SHOWN).map((one, number) => card(number, page.runs[number], one)));
  byId("more").textContent = found.length > SHOWN ? `… and ${found.length - SHOWN} more runs, checked and not shown.` : "";
  details(found);
  document.title = `${answer}: receipt of a computation`;
}

async function check() {
  byId("again").hidden = false;
  try {
    show(await verified());
  } catch (error) {
    said("CANNOT_RECOMPUTE", `${error.message}. ${MEANINGS.CANNOT_RECOMPUTE}`, "cannot_recompute");
  }
}

// Other receipts and inputs --------------------------------------------------------------------------------------------

/** The runs for another array of one input; other inputs stay those of the first run. */
function otherRuns(name, bytes) {
  const { inputs } = page.program;
  const stem = name.replace(/\.npy$/, "");
  const input = inputs.length === 1 ? inputs[0] : inputs.find((item) => item.get("value").get("name") === stem);
  if (input === undefined) {
    throw new Error(`name the file after an input: ${inputs.map((item) => `${item.get("value").get("name")}.npy`).join(", ")}`);
  }
  const value = input.get("value");
  const { shape, elements } = readNpy(bytes);
  const count = size(value);
  if (elements.length === 0 || elements.length % count !== 0) {
    throw new Error(`expected the shape ${value.get("shape").join(" x ")}, found ${shape.join(" x ")}`);
  }
  const codes = codesOf(input, shape, elements);
  const wrong = codes.find((code) => code < value.get("lo") || code > value.get("hi"));
  if (wrong !== undefined) {
    throw new Error(`the code ${wrong} is outside ${value.get("lo")} to ${value.get("hi")}`);
  }
  return Array.from({ length: codes.length / count }, (_, number) => ({
    first: true,
    inputs: { ...page.runs[0]?.inputs, [value.get("name")]: codes.slice(number * count, (number + 1) * count) },
  }));
}

async function take(files) {
  for (const file of files) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    try {
      if (file.name.endsWith(".npy")) {
        page.runs = otherRuns(file.name, bytes);
      } else {
        page.receipt = new Receipt(bytes);
      }
    } catch (error) {
      const answer = error instanceof Finding ? error.answer : "REFUSED";
      said(answer, `${file.name}: ${error.message}. Nothing was run.`, answer.toLowerCase());
      byId("again").hidden = false;
      return;
    }
  }
  await check();
}

function original() {
  page.receipt = new Receipt(bytesOf("receipt"));
  page.runs = shippedRuns();
}

function listen() {
  byId("files").addEventListener("change", (event) => {
    const chosen = [...event.target.files];
    event.target.value = ""; // the same file, changed in the meantime, can be chosen again
    take(chosen);
  });
  byId("again").addEventListener("click", () => {
    original();
    check();
  });
  const zone = byId("drop");
  for (const name of ["dragenter", "dragover"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      zone.dataset.over = "yes";
    });
  }
  document.addEventListener("dragleave", () => delete zone.dataset.over);
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    delete zone.dataset.over;
    take([...event.dataTransfer.files]);
  });
}

// ----------------------------------------------------------------------------------------------------------------------

/** The module must be of the program whose bytes are in this page, and take and give the same tensors. */
function checkModule() {
  const said = page.model.description;
  const ends = (items) => items.map((item) => [item.get("value").get("name"), item.get("value")]);
  if (page.model.digest !== hex(page.program.digest)) {
    throw new Error(`the module says that it computes the program ${page.model.digest}, this page has ${hex(page.program.digest)}`);
  }
  const pairs = [
    [said.inputs, ends(page.program.inputs)],
    [said.state, ends(page.program.state)],
    [said.outputs, page.program.outputs.map((item) => [item.get("name"), page.program.values[item.get("value")]])],
  ];
  for (const [found, expected] of pairs) {
    const equal =
      found.length === expected.length &&
      found.every((one, index) => one.name === expected[index][0] && one.shape.join() === expected[index][1].get("shape").join());
    if (!equal) {
      throw new Error("the module takes or gives other tensors than the program");
    }
  }
}

async function main() {
  selfTest();
  page.program = new Program(bytesOf("program"));
  const module = bytesOf("module");
  page.module = hex(sha256(module));
  page.model = new Model(await WebAssembly.compile(module));
  checkModule();
  page.begin = page.program.initial();
  for (const { name, type, id } of facts.state) {
    page.begin[name] = Int32Array.from(new TYPES[type](bytesOf(id).buffer));
  }
  byId("digest").textContent = hex(page.program.digest);
  byId("module-hash").textContent = page.module;
  original();
  listen();
  await check();
  byId("again").hidden = true;
}

main().catch((error) => said("CANNOT_RECOMPUTE", `${error.message}. ${MEANINGS.CANNOT_RECOMPUTE}`, "cannot_recompute"));
