"""ONNX graphs for training: read without trust in their origin, written in one form, and measured before use.

step.StepGraph checks a server's bytes on a device. Exporters call reading.read and writing.write too.
operators.TABLE has the operators that a graph may have. A new operator needs an entry there and a rule for
its shape in shapes.py. Pure Python and numpy: a device has no onnx. Imports errors and model.
"""
