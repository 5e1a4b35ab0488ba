"""Operators and layers that torch.onnx lacks, or exports badly.

`translations.TRANSLATIONS` has what a graph under construction gets for each operator (convolution.py,
pooling.py), `apart.TAKEN_APART` functions that are traced as others, `recurrence` layers whose steps
(cells.py) are one loop (scanning.py). Knows neither models nor files; imports nothing else of edgeflock.
"""
