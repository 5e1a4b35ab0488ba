"""A model's training step and evaluation as ONNX graphs, for devices without torch.

The server serves them with served.GraphStore, and `edgeflock export` makes them with export.export_model.
Both are imported from their modules: export imports torch, and served.py is also the main module of the
process that exports. The package `operators` has what torch.onnx lacks: a translation goes into its
translations.py, a recurrent layer's step into its cells.py. Imports edgeflock.shared only.
"""
