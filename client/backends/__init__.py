"""What computes a gradient: a `Backend`, of torch.py or onnx.py, which are imported from their files only,
since each brings its library. A new one is a file here and a choice in client/run/choosing.py. Imports
edgeflock.shared.
"""

from edgeflock.client.backends.backend import Backend, Predictor, Predicts

__all__ = ["Backend", "Predictor", "Predicts"]
