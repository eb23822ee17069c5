"""Networks as ONNX models, quantised by ONNX Runtime's tools; and the distance of that runtime from their meaning."""
