"""Flower's ClientApps: the mod `compress` for apps in Flower, and a runner of apps in this process.

mod: the mod that a ClientApp names. app: a ClientApp as backend, with its own data. inside: the only file
that uses flwr's private names. Import app from its file, since a ClientApp needs the mod alone. Imports
training, data and backends' types.
"""

from edgeflock.client.flower.mod import compress

__all__ = ["compress"]
