"""ONNX graphs as both ends know them: the few operators that training needs, read without trusting who wrote
them, written in one form, and weighed before anything is computed.

step.Step is what a device makes of a server's bytes, reading.read and writing.write what an exporter calls
too; operators.TABLE is what a graph may have. A new operator is an entry there and a rule for its shape in
shapes.py, or products.py. Pure Python and numpy: a device has no onnx. Imports errors and model.
"""
