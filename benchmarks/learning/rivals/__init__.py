"""Rivals in plain torch: each one short piece that yields the model after each of its steps.

`federation` is what they share: clients with their data and pace, bytes, gradients and virtual seconds. A
rival is a frozen record of its settings with `models(federation)`, which is its paper's algorithm.
"""
