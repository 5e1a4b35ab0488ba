"""Browsers as devices: a fleet whose tabs die, memory, bytes and time. `python -m benchmarks.browsers`."""
