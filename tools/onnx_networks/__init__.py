"""Networks as ONNX models, quantised by ONNX Runtime's tools; and how far that runtime is from their exact meaning."""
