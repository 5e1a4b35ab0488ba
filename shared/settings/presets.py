"""Presets: the settings that `preset = "NAME"` sets."""

PRESETS: dict[str, dict[str, object]] = {
    "low-bandwidth": {
        "local.steps": 2,
        "local.optimizer": "sgd",
        "coordination.rule": "adacomp",
        "coordination.average": 8.0,
        "compression.select": 0.0005,
        "compression.balance": 0.5,
        "compression.feedback": 0.6,
        "compression.indices": "grid",
        "compression.values": "scale",
        "downlink.share": 0.02,
    },
    "cohort": {
        "local.steps": 30,
        "coordination.mode": "cohort",
        "coordination.cohort": 20,
        "coordination.cohort_rounds": 5,
        "coordination.deadline": 600.0,
        "compression.feedback": 0.005,
        "downlink.share": 0.3,
    },
}
"""cohort: the fewest known bytes for an accuracy, for fleets whose devices may take turns; low-bandwidth: the
fewest if all devices train at any time. docs/cohorts.md and docs/compression.md say when not to use them.
"""
