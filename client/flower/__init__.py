"""Flower's ClientApps: the mod `compress` for those that Flower runs, and what runs one in this process.

mod, which a ClientApp names; app (a ClientApp as what trains, with its own data), and inside, the only file
that knows flwr's private names. app is imported from its file: of this room a ClientApp wants the mod alone.
Imports training, data and backends' types.
"""

from edgeflock.client.flower.mod import compress

__all__ = ["compress"]
