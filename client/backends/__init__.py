"""Gradient computation: the `Backend` protocol, and its implementations in torch.py and onnx.py.

Import these modules directly, since each loads its library. A new backend is a file here and a choice in
client/run/choosing.py. Imports edgeflock.shared.
"""

from edgeflock.client.backends.backend import Backend, PredictingBackend, Predictor
