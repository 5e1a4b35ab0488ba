"""Edgeflock as Flower strategies: `AsyncAdaComp` and `ScaDLES` are the public interface.

Each file holds one concept: the strategies, their base class (strategy), the run, messages, nodes, options,
evaluations. Only this package uses flwr. Imports ledger, engine and lower layers: not sessions nor
operations, which serve native devices.
"""

from edgeflock.server.flower.strategies import AsyncAdaComp, ScaDLES

__all__ = ["AsyncAdaComp", "ScaDLES"]
