"""Fuzzers of everything that cvm reads: documents, tensor files, archives, quantization files, programs, receipts,
one-step proofs, vectors.

    python -m tools.fuzz.documents --count 1000 --seed 1
    python -m tools.fuzz.tensors --count 1000 --seed 1
    python -m tools.fuzz.archives --count 1000 --seed 1
    python -m tools.fuzz.quantization --count 1000 --seed 1
    python -m tools.fuzz.programs --count 1000 --seed 1
    python -m tools.fuzz.receipts --count 1000 --seed 1
    python -m tools.fuzz.receipt_tool --count 1000 --seed 1
    python -m tools.fuzz.vector_consumer --count 1000 --seed 1
    python -m tools.fuzz.steps --count 1000 --seed 1
    python -m tools.fuzz.models --count 1000 --seed 1
    python -m tools.fuzz.onnx_models --count 1000 --seed 1
    python -m tools.fuzz.native_programs --count 1000 --seed 1

The seed and the number of a case determine it completely, so a failure can be repeated. `tools.fuzz.harness` says what
a failure is and where it is stored. The long run is 200,000 documents and 200,000 binary files of all kinds together.
"""
