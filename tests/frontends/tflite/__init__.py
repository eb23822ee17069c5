"""Tests of the reader of TFLite; without the package ``tflite`` they are skipped by name."""

import pytest

pytest.importorskip("tflite", reason="the extra tflite is not installed")
pytest.importorskip("flatbuffers", reason="the extra tflite is not installed")
