"""Operators and layers that torch.onnx lacks, or exports badly.

`translations.TRANSLATIONS` maps an operator to the function that builds its ONNX nodes (convolution.py,
pooling.py). `decompositions.REPLACEMENTS` replaces functions before the trace. `recurrence` has layers whose
steps (cells.py) are one loop (scanning.py). Knows neither models nor files; imports no other edgeflock code.
"""
