// Times engines of WebAssembly for tools/bench/wasm.py: a list of jobs from the command line, a line of JSON for each.
//
// A job is {engine, file, network}. Every engine computes on one thread. Jobs of one network take turns. The time is
// processor time of the process, so that other work on the machine hardly counts.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { load } from "../../cvm/export/wasm/package/index.js";

const { packages, rounds, seconds, jobs } = JSON.parse(process.argv[2]);
const require = createRequire(pathToFileURL(`${packages}/package.json`));
const count = (shape) => shape.reduce((product, extent) => product * extent, 1);

async function ours(file) {
  const model = await load(readFileSync(file));
  const inputs = model.description.inputs.map((one) => {
    const codes = Int32Array.from({ length: count(one.shape) }, (_, k) => one.lo + ((k * 7) % (one.hi - one.lo + 1)));
    return [one.name, codes];
  });
  return () => model.run(Object.fromEntries(inputs));
}

let tflite;

/** TFLite with XNNPACK, as @tensorflow/tfjs-tflite ships it; only the inference is timed, not the copy of the input. */
async function xnnpack(file) {
  const folder = require.resolve("@tensorflow/tfjs-tflite/package.json").replace("package.json", "wasm/");
  const factory = require(`${folder}tflite_web_api_cc_simd.js`);
  tflite ??= await factory({ wasmBinary: readFileSync(`${folder}tflite_web_api_cc_simd.wasm`) });
  const content = readFileSync(file);
  const at = tflite._malloc(content.length);
  tflite.HEAPU8.set(content, at);
  const options = { numThreads: 1, enableWebNNDelegate: false, webNNDeviceType: 0, enableProfiling: false };
  Object.assign(options, { maxProfilingBufferEntries: 0, bufferSizes: 0 });
  const runner = tflite.TFLiteWebModelRunner.CreateFromBufferAndOptions(at, content.length, options).value();
  const data = runner.GetInputs().get(0).data();
  data.forEach((_, k) => (data[k] = (k * 7) % 251));
  return () => runner.Infer();
}

async function onnxruntime(file) {
  const ort = await import(pathToFileURL(require.resolve("onnxruntime-web")));
  ort.env.wasm.numThreads = 1;
  const options = { executionProviders: ["wasm"], graphOptimizationLevel: "all" };
  const session = await ort.InferenceSession.create(readFileSync(file), options);
  const [{ name, shape, type }] = session.inputMetadata;
  const codes = (type === "int8" ? Int8Array : Uint8Array).from({ length: count(shape) }, (_, k) => k * 7);
  const feeds = { [name]: new ort.Tensor(type, codes, shape) };
  return () => session.run(feeds);
}

const MAKERS = { cvm: ours, xnnpack, onnxruntime };

async function timed(run, times) {
  const begin = process.cpuUsage();
  for (let k = 0; k < times; k++) {
    await run();
  }
  const { user, system } = process.cpuUsage(begin);
  return (user + system) / 1000 / times;
}

for (const network of new Set(jobs.map((job) => job.network))) {
  const entries = [];
  for (const job of jobs.filter((one) => one.network === network)) {
    const run = await MAKERS[job.engine](job.file);
    await timed(run, 5);
    const times = Math.max(1, Math.round((1000 * seconds) / (await timed(run, 5))));
    entries.push({ ...job, run, times, found: [] });
  }
  for (let round = 0; round < rounds; round++) {
    for (const entry of entries) {
      entry.found.push(await timed(entry.run, entry.times));
    }
  }
  for (const { engine, file, found } of entries) {
    found.sort((a, b) => a - b);
    console.log(JSON.stringify({ network, engine, file, least: found[0], median: found[found.length >> 1] }));
  }
}
