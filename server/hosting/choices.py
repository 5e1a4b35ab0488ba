"""The tables of allowed values for settings that name a server plugin. Code that reads settings uses it."""

from edgeflock.server.coordination import MODES
from edgeflock.server.defence import DEFENCES
from edgeflock.server.descent import AGGREGATES, RULES, SCHEDULES
from edgeflock.server.descent import KINDS as OPTIMIZERS
from edgeflock.server.monitoring.listeners import CALLBACKS
from edgeflock.server.monitoring.trackers import KINDS
from edgeflock.server.publication import MODES as PUBLICATIONS
from edgeflock.shared.settings.choices import Tables

CHOICES: Tables = {
    "coordination.aggregate": AGGREGATES,
    "coordination.mode": MODES,
    "coordination.rule": RULES,
    "defence.mode": DEFENCES,
    "downlink.mode": PUBLICATIONS,
    "optimizer.kind": OPTIMIZERS,
    "optimizer.schedule": SCHEDULES,
    "callbacks.on_evaluated": CALLBACKS,
    "callbacks.on_finding": CALLBACKS,
    "callbacks.on_update": CALLBACKS,
    "callbacks.stop": CALLBACKS,
    "evaluation.trackers": KINDS,
}
