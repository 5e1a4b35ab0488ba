"""The ways to apply a step to theta: plain, or with an optimizer (way.py). Only parameters.py imports it."""

from edgeflock.server.descent.ways.optimized import Optimized
from edgeflock.server.descent.ways.plain import Plain
from edgeflock.server.descent.ways.way import Stepper

__all__ = ["Optimized", "Plain", "Stepper"]
