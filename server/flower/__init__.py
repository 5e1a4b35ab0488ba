"""Edgeflock as Flower strategies: `AsyncAdaComp` and `ScaDLES`, which is all that anybody outside uses.

A file is a concept: the strategies, what they have in common (strategy), the run behind them (run), messages,
nodes, options, evaluations. flwr is at home here. Imports ledger, engine and what is below: not sessions nor
operations, which are for devices of our own.
"""

from edgeflock.server.flower.strategies import AsyncAdaComp, ScaDLES

__all__ = ["AsyncAdaComp", "ScaDLES"]
