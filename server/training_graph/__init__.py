"""A model's training step and evaluation as ONNX graphs, for devices without torch.

Outside, the server serves them with served.GraphStore, and `edgeflock export` makes them with
export.export_model. Both are imported from their files: export brings torch, and served.py is also the
process of its own that exports. What torch.onnx lacks is in a room of its own, operators: a translation goes
into its translations.py, a recurrent layer's step into its cells.py. Imports edgeflock.shared only.
"""
