"""Weights in eight bits, for devices that only predict: dynamic quantisation by onnxruntime.

Weights of matrix products and convolutions become integers; inputs of these are quantised as they come. A
file is about a quarter as large. Accuracy may fall, so callers measure it.
"""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

_OPERATORS = ["MatMul", "Gemm", "Conv", "LSTM"]


def quantized(model: bytes) -> bytes:
    """Return an ONNX model with weights of eight bits; its metadata are kept. It may take seconds."""
    proto = onnx.load_from_string(model)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        quieted = logging.root.manager.disable
        logging.disable(logging.WARNING)  # it recommends a preparation that the graphs do not need
        try:
            quantize_dynamic(proto, path, op_types_to_quantize=_OPERATORS, weight_type=QuantType.QUInt8)
        finally:
            logging.disable(quieted)
        made = onnx.load(path)
    onnx.helper.set_model_props(made, {entry.key: entry.value for entry in proto.metadata_props})
    return bytes(made.SerializeToString(deterministic=True))
