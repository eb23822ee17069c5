"""What to do about an error: a sentence for each family of codes, and for each beginning of a code."""

from __future__ import annotations

__all__ = ["ADVICE", "FAMILIES"]

FAMILIES = {
    "agreement": "Executors that are compared with each other (`cvm check`, `cvm demo`).",
    "any format": (
        "The encoding that programs, receipts, traces and vectors share; `<format>` is the kind of file that is read."
    ),
    "archive": "Archives of arrays (`.npz`) beside receipts.",
    "argument": "An argument of a function of Python has the wrong type or value.",
    "array": "Files of arrays: `.npy`, `.npz`.",
    "audit": "Folders of receipts and the log of their verification.",
    "bench": "`cvm bench`.",
    "cache": "The folder of compiled code (`cvm cache`).",
    "calibration": (
        "`cvm quantize`, `cvm.quantize`, `cvm.quantize_program`: quantisers from data "
        "([calibration.md](calibration.md))."
    ),
    "chain": "Claims and games on a chain: nodes, keys, contracts ([chain.md](chain.md)).",
    "cluster": "Work on a Ray cluster ([receipts.md](receipts.md), [threads.md](threads.md)).",
    "reduce": "`cvm reduce`: the smallest model that still fails ([reduce.md](reduce.md)).",
    "compare": "`cvm compare` and `cvm explain`: models in other engines ([compare.md](compare.md)).",
    "cuda": 'NVIDIA GPUs: `--executor cuda`, `cvm.Session(.., "cuda")` ([cuda.md](cuda.md)).',
    "conformance": "`cvm conformance`: operators in other engines ([conformance.md](conformance.md)).",
    "cvm_runtime": "Models of cvm-runtime, read, metered and written ([cvm-runtime.md](cvm-runtime.md)).",
    "deployment": "Files that say where the contracts are on a chain ([chain.md](chain.md)).",
    "digest": "`cvm digest`, and digests that are expected.",
    "dispute": "Disputes about runs, and answers of their parties ([disputes.md](disputes.md)).",
    "executors": "Requests that an executor cannot fulfil.",
    "export": "Programs and quantisers written for others.",
    "format": "A file is not what a command or function takes.",
    "generation": "`cvm generate`, `cvm.generate` ([language-models.md](language-models.md)).",
    "graph": (
        "A graph of real tensors breaks a rule of its operations ([graph.md](graph.md)). A file alone cannot "
        "cause this."
    ),
    "input": "Arrays for the inputs of a program.",
    "inspect": "`cvm inspect`.",
    "judge": "How many elements FORMAL judges, and how they are drawn.",
    "key": "Files of keys.",
    "legalize": "`cvm legalize`: programs in the document's ops alone ([legalize.md](legalize.md)).",
    "limit": "A bound on files, shapes or work, found before memory is taken. Programs name their profile of bounds.",
    "log": "The log of an interrupted verification.",
    "lowering": "A model was read, but no program can be proven to compute its meaning ([lowering.md](lowering.md)).",
    "map": "`cvm map`: one program over a data set ([threads.md](threads.md)).",
    "nnef": "NNEF documents, tensor files, quantisation files and containers; the second word is the rule's chapter.",
    "onnx": "Models of ONNX ([onnx.md](onnx.md)).",
    "ops": "An integer operation is used against its declaration; `<label>` is C1, C2, .. of [ops.md](ops.md).",
    "openvx": "OpenVX graphs ([openvx.md](openvx.md)); the classes carry the vx_status.",
    "out": "Arrays that receive the outputs of a run.",
    "output": "Results could not be written.",
    "page": "`cvm receipt page`: a receipt as a page ([receipts.md](receipts.md)).",
    "program": "A program breaks a rule of programs, or is no program.",
    "proof": "Files of one-step proofs.",
    "quantization": "An impossible quantiser or scale.",
    "receipt": "A receipt is not of its format, or cannot be built.",
    "reference": "The evaluation of a graph in float64 (`cvm nnef run`, `cvm report`, calibration).",
    "report": "`cvm report`.",
    "result": "The result of a run.",
    "session": "`cvm.Session`.",
    "sign": "Keys and signatures of receipts.",
    "state": "The state before a run.",
    "step": (
        "A one-step proof is refused; the second word is the check that failed "
        "([commitments.md](commitments.md), section 9)."
    ),
    "tensor": "Files of tensors.",
    "tflite": "Models of TFLite ([tflite.md](tflite.md)).",
    "trace": "A trace is not of its format, or cannot be built.",
    "usage": "The command line.",
    "vectors": "Test vectors, and programs that answer them.",
    "verify": "`cvm receipt verify`, `cvm.verify`.",
    "vocabulary": "Vocabularies of language models ([language-models.md](language-models.md)).",
    "webnn": "WebNN graphs ([webnn.md](webnn.md)).",
}
"""The subject of all codes with the same first word."""

_WHOLE = (
    "The file is damaged or of another kind: copy or make it again; `cvm inspect` and `cvm digest` say what a file is."
)
_AGAIN = "The path is no regular file, or the file is being written: wait until it is written, and name a file."
_PATH = "Check the path and its permissions."
_PYTHON = "Give an argument as the message says; [api.md](api.md) has the types."
_EXPORT = (
    "Export or convert the model again; if another engine takes the file, report it with the smallest "
    "file that shows it."
)
_DOCUMENT = "Correct the document at the line and column that the message names."
_FEWER = "Give the tensor, or the operands of the operation, quantisers of fewer bits; or let `cvm quantize` choose."
_BUG = "Report it with the smallest model that shows it and what `cvm doctor --json` prints."
_PROOF = "Do not believe the proof. Its sender can make a new one from the run: `cvm dispute step`."
_LARGE = "Split the work or make it smaller; if it is legitimate, the bounds are those of `cvm/limits.py`."

ADVICE = {
    "agreement.": (
        "Run `cvm doctor`; an executor that differs from FORMAL is a defect: report it, and use `--executor numpy`."
    ),
    "<format>.": _WHOLE,
    "<format>.options": "Leave the option out, or name a model of the format that has it.",
    "archive.": _AGAIN,
    "argument.": _PYTHON,
    "array.": _WHOLE,
    "array.dtype": "Save numbers or booleans of at most 64 bits: `array.astype(numpy.float32)`.",
    "array.kind": "Save the array with `numpy.save` or `numpy.savez`.",
    "array.member": "Name one of the members: `-i NAME=FILE:MEMBER`.",
    "array.unreadable": _PATH,
    "audit.": "Name a folder that holds `*.receipt` files with their inputs `*.npz` beside them.",
    "audit.log": "Name a log of the same programs and options, or a new one.",
    "bench.": "Choose another engine, batch or model, as the message says.",
    "bench.extra": "`pip install 'cvm[bench]'`.",
    "bench.outputs": "Run `cvm check` on the program, and report the difference.",
    "cache.": "Make the folder one that only you can write in; `cvm doctor` says which it is.",
    "calibration.": "Give the option a value that the message lists; `cvm quantize --help` has all.",
    "calibration.real": "Remove NaN and infinities from the data or the weights of the tensor that is named.",
    "calibration.goal": "Ask for less, allow more bytes, or give more data; the message has what can be reached.",
    "chain.": "Check the node and the deployment; `cvm chain status` shows what is on the chain.",
    "chain.extra": "`pip install 'cvm[chain]'`.",
    "chain.key": "Give 32 bytes in hexadecimal, in a file that only you can read or in CVM_CHAIN_KEY.",
    "chain.fee": "Wait until gas is cheaper, or say `--max-fee GWEI`.",
    "chain.code": "Use the version of cvm that made the contracts, or `cvm chain deploy` new ones.",
    "chain.pending": "Repeat the command: what is on the chain is not done twice.",
    "chain.trace": "Make the receipt with `cvm run --receipt FILE --trace`.",
    "cluster.": "Check the address, and that all nodes run the same versions of cvm, Ray and Python.",
    "compare.engine": "Name one of the engines; settings stand after a colon ([compare.md](compare.md)).",
    "compare.extra": "Install the extra `engines`, or only the package that the message names.",
    "compare.failed": "Try the model in the engine itself: the message ends with what the engine says.",
    "compare.format": (
        "Give a quantised model of ONNX or TFLite, in a format that the engine reads. Programs are compared between "
        "executors: `cvm check`, `cvm reduce --executors`."
    ),
    "compare.isa": "Install qemu-user, or choose an instruction set that the message names.",
    "compare.state": "Give the model without its state, or with its state as an input and an output.",
    "compare.tensors": "Give a quantised model: one of floats has no exact codes. `cvm quantize` makes one.",
    "cuda.": "Use `--executor native`; `cvm doctor` says which GPUs can be used, or why none can.",
    "cuda.call": "Start the command again; if it fails again, use `--executor native` and report it with the message.",
    "cuda.code": "Use `--executor native`, and report the message with what `cvm doctor` prints.",
    "cuda.device": "Name a GPU that `cvm doctor` lists: `--executor cuda:0`.",
    "cuda.memory": "Give smaller batches, end other programs that use the GPU, or choose another one.",
    "cuda.package": "`pip install 'cvm[cuda]'`, or use `--executor native`.",
    "conformance.op": "Name one of the operators that the message lists, in the spelling of the format.",
    "cvm_runtime.": _EXPORT,
    "cvm_runtime.compat": "Say `correct` or `cvm-1`.",
    "cvm_runtime.export.": (
        "The library cannot express this: run the program with cvm, or change the part that the message names."
    ),
    "cvm_runtime.options": "Leave the option out: it does not apply to models of cvm-runtime.",
    "cvm_runtime.unreadable": _PATH,
    "cvm_runtime.graph.file": _AGAIN,
    "cvm_runtime.params.file": _AGAIN,
    "deployment.": "Name the file that `cvm chain deploy` wrote.",
    "digest.": "Name a program, a receipt, a trace, or an array of integers.",
    "dispute.": (
        "Compare runs of one program on one input; make the files with `cvm run --codes --capture all` or "
        "`--trace-file`."
    ),
    "executors.": "Name an executor that `cvm doctor` lists, and give it what the program declares (`cvm inspect`).",
    "executors.device": "Name one device, as in `--executor cuda:1`, and only for an executor that uses devices.",
    "executors.native": "Use `--executor numpy`; `cvm doctor` says why native code is not used here.",
    "export.machine": "Choose a machine that the message names.",
    "export.object": "Report the program (`cvm doctor` says where), or export it with `--format c`.",
    "export.target": "Choose a target triple that LLVM knows, such as x86_64-linux-gnu or aarch64-apple-darwin.",
    "export.wasm": "Report the program (`cvm doctor` says where), or export it with `--format c`.",
    "export.": "Choose other bits or another form, or write a program (`-o model.cvm`) instead.",
    "format.": "Follow the message: it names what the file is, and the command that takes it.",
    "generation.": "Follow the message: it names the program, the option or the prompt that does not fit.",
    "graph.": _BUG,
    "input.": "Give arrays as `cvm inspect PROGRAM` (`session.inputs`) lists them: names, shapes, types.",
    "input.integers": (
        "Say `--codes` (`codes=True`) if the integers are codes, or convert them to floats if they are numbers."
    ),
    "input.range": "Scale the data as in training, or let cvm clip the numbers: `--out-of-range clamp`.",
    "inspect.": "Use `--json`.",
    "judge.": "Give `--judge` a count and `--salt` hexadecimal digits.",
    "key.": _AGAIN,
    "legalize.": "Use the program as it is, or quantise the model with fewer bits.",
    "limit.": _LARGE,
    "limit.device_memory": "Give smaller batches, capture fewer tensors, or use `--executor native`.",
    "limit.memory": "Free memory or give fewer `--jobs`; then run the same command again: it goes on.",
    "limit.workers": "Start nodes of the cluster, then run the same command again: it goes on.",
    "limit.context": "Shorten the prompt, or generate fewer tokens: the program's memory holds no more.",
    "limit.cycles": "Generate fewer tokens.",
    "limit.logits": "Quantise the logits with at most 31 bits.",
    "limit.weights": "Lower the temperature, or quantise the logits more coarsely.",
    "limit.wasm_memory": "Export a smaller program, or export it with `--format c`.",
    "page.": "Give a file of labels that can be read: one name a line.",
    "page.program": "Give the program whose digest the receipt names (`cvm receipt show`).",
    "page.runs": "Give the arrays of all runs of the receipt; `--cycles` if they have a cycle axis.",
    "limit.work": "Run fewer samples or a smaller model; `cvm inspect --cost` shows where the gas goes.",
    "limit.stack": "Make the document less deep.",
    "log.": _AGAIN,
    "lowering.": _FEWER,
    "lowering.contents": "Provide the tensor files: name the model's folder or archive, not the bare document.",
    "lowering.operation": (
        "Replace the operation, or use one of those that [graph.md](graph.md) lists as exact or bounded."
    ),
    "lowering.unquantized": "Give the tensor a quantiser: `cvm quantize MODEL -i DATA` does.",
    "lowering.rounding": "Give the tensor a quantiser that rounds half up.",
    "map.": "See the forms of data sets and outputs in threads.md.",
    "map.empty": "Check the path: an item is a file of a folder, a row, or an entry of the first axis.",
    "map.parquet": "Install the library, or use `.npz` files.",
    "map.types": "Convert the arrays to one type: real numbers, or integers that are codes.",
    "nnef.": _DOCUMENT,
    "nnef.container.": (
        "Pack the model again: a folder, or a plain .tgz, with `graph.nnef` and one `.dat` file for each variable."
    ),
    "nnef.container.unreadable": _PATH,
    "nnef.container.unwritable": _PATH,
    "nnef.container.exists": "Name a path that does not exist yet.",
    "nnef.extension.": (
        "Use what the declared version and extensions offer; `cvm nnef upgrade` reads provisional documents."
    ),
    "nnef.invocation.": "Correct the call; `cvm ops --nnef NAME` shows what the operation takes.",
    "nnef.quantization.": "Correct `graph.quant`, or write a new one: `cvm quantize MODEL -i DATA -o graph.quant`.",
    "nnef.shapes.": "Correct the shapes, or the operation, at the line that the message names.",
    "nnef.tensor-file.": "Write the tensor file again; the message says what its header or its items break.",
    "nnef.writer.": "NNEF cannot express the graph: write a program instead (`-o model.cvm`).",
    "onnx.": _EXPORT,
    "onnx.external": "Put the files of external data into the model's folder, or save the model with its data inside.",
    "onnx.file": _AGAIN,
    "onnx.external.file": _AGAIN,
    "onnx.external.unreadable": _PATH,
    "onnx.float": "Quantise the model: `cvm quantize model.onnx -i data.npz -o model.cvm`.",
    "onnx.input": "Name an input that the model has, and give open extents by `--input-shape NAME=N,N,..`.",
    "onnx.operator": "Replace the operator, or export without it; [onnx.md](onnx.md) lists those that are read.",
    "onnx.opset": "Export with an opset that is read, or convert it: `onnx.version_converter.convert_version`.",
    "onnx.options": "Leave the option out: the file is no model of ONNX.",
    "onnx.package": "`pip install 'cvm[onnx]'`.",
    "onnx.range": "Give the input an interval that its integers stay in: `--input-range NAME=LO,HI`.",
    "onnx.state": "Name an input and the output that it becomes, of one shape: `--state NAME=OUTPUT`.",
    "onnx.unreadable": _PATH,
    "openvx.": (
        "Correct the call by the specification's section of the function or kernel; the message names the parameter."
    ),
    "ops.": "Correct the call by the op's declaration: `cvm ops NAME`, or [ops.md](ops.md).",
    "out.": "Give each output an array of its own in the shape of the result: `numpy.empty(SHAPE, numpy.int32)`.",
    "output.": "Check the path, its permissions and the space on the disk.",
    "program.": _WHOLE,
    "program.op_set": "The program needs another version of cvm: compile the model again, or install that version.",
    "program.unreadable": _PATH,
    "proof.": _AGAIN,
    "quantization.": (
        "Give the quantiser finite numbers with min below max, a scale above zero and bits that are possible."
    ),
    "reduce.command": "Give a command that this account can run; its first word is a program.",
    "reduce.cycles": "Give `--cycles`, and arrays with an axis of cycles before the axes of the tensor.",
    "reduce.data": _BUG,
    "reduce.extra": "`pip install 'cvm[onnx]'`.",
    "reduce.format": "Compile the model, and reduce the program: `cvm compile MODEL -o model.cvm`.",
    "reduce.passes": "Give the data with which it fails, or draw other codes: `--random N --seed S`.",
    "reduce.process": "Look whether `python -m cvm.reduction.worker` starts with this Python.",
    "reduce.state": "Compile the model, and reduce the program: `cvm compile MODEL -o model.cvm`.",
    "reduce.subgraph": "Export the model without branches and loops.",
    "reduce.tensor": _BUG,
    "receipt.": _WHOLE,
    "receipt.file": _AGAIN,
    "receipt.unreadable": _PATH,
    "reference.": "Correct the model or the data at the tensor that the message names.",
    "reference.operation": "cvm has no float reference for this operation: leave the comparison out.",
    "reference.data": "Provide the tensor files: name the model's folder or archive.",
    "report.": (
        "Name the model that the program was compiled from, labels that are integers, and an output of real numbers."
    ),
    "report.extra": "`pip install 'cvm[report]'`, or `--json`.",
    "result.": "Read the codes: the output has no quantiser.",
    "session.": _PYTHON,
    "sign.": "Make a key with `openssl genpkey -algorithm ed25519 -out key.pem`.",
    "sign.package": "`pip install 'cvm[sign]'`. Verifying signatures needs no extra.",
    "state.": "Give the state as the program declares it, as codes: `cvm inspect PROGRAM`.",
    "step.": _PROOF,
    "step.count": "Name a step that the element has; steps count from 0.",
    "step.element": "Name an element that the tensor has.",
    "step.target": "Name an output of the op.",
    "step.unreadable": _PATH,
    "tensor.": _AGAIN,
    "tflite.": _EXPORT,
    "tflite.compat": "Compile without `--compat`: the exact meaning is computed.",
    "tflite.extra": "`pip install 'cvm[tflite]'`.",
    "tflite.file": _AGAIN,
    "tflite.float": "Quantise the model: `cvm quantize model.tflite -i data.npz -o model.cvm`.",
    "tflite.operator": "Replace the operator, or convert without it; [tflite.md](tflite.md) lists those that are read.",
    "tflite.unreadable": _PATH,
    "trace.": _WHOLE,
    "trace.file": _AGAIN,
    "trace.unreadable": _PATH,
    "usage": "Type what the message says, or `--help` after the command.",
    "vectors.": "Name a folder of vectors and a command that runs here; `spec_vectors/README.md` has the protocol.",
    "verify.": "Name a level that the given files allow; [receipts.md](receipts.md) has the levels.",
    "vocabulary.": "Give a JSON list of the texts of all tokens, each once, in the order of their numbers.",
    "vocabulary.unreadable": _PATH,
    "webnn.": "Give arrays of the declared types, finite and within the range that the message names.",
}
"""What to do about a code, by the beginning of the code; the longest matching beginning counts."""
