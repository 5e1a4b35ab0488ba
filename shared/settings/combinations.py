"""What does not go together in a run's settings, and why: one row each, in one table.

    Row("coordination.turns", ("coordination.cohort",), "is how long a device takes part in a cohort")

reads: unless coordination.turns is its default, it needs coordination.cohort. "key=a|b" is one of two values.
One need of several is enough. Rows are silent where another package's choice is set.
"""

from dataclasses import dataclass

from pydantic import BaseModel

from edgeflock.shared.settings.optimizer import OptimizerSettings

OURS = {
    "coordination.mode": "async|rounds|buffer|elastic",
    "coordination.gate": "|ssp|asp",
    "defence.mode": "none|clip|score",
    "downlink.mode": "lossy|exact",
    "optimizer.kind": "sgd|momentum|nesterov|adam|adamw|adagrad",
    "optimizer.schedule": "constant|step|cosine|plateau",
}
"""What we know the needs of."""


@dataclass(frozen=True, slots=True)
class Row:
    """A setting that needs another one."""

    setting: str
    needs: tuple[str, ...]
    """One of these."""
    why: str
    """Goes on after the name of the setting."""

    @property
    def key(self) -> str:
        """section.key of the setting."""
        return self.setting.partition("=")[0]

    @property
    def remedy(self) -> str:
        """What to do."""
        without = f"leave {self.key} out" if self.setting == self.key else f"choose another {self.key}"
        return f"set {self.shown}, or {without}"

    @property
    def shown(self) -> str:
        """What it needs."""
        return " or ".join(map(_shown, self.needs))


_ELASTIC, _ROUNDS = ("coordination.mode=elastic",), ("coordination.mode=rounds",)
_NOT_ELASTIC, _NOT_ROUNDS = (
    ("coordination.mode=async|rounds|buffer",),
    ("coordination.mode=async|buffer|elastic",),
)
_ADAFACTOR = "run.local_optimizer=adafactor"
_LARGEST, _SIGNIFICANT = ("compression.selection=largest",), ("compression.selection=significance",)
_LOSSY = ("downlink.mode=lossy",)
_STEP = "is of the server's step, and in elastic averaging the server goes towards the devices"

ROWS: tuple[Row, ...] = (
    Row("coordination.buffer", ("coordination.mode=buffer",), "is how many updates make a step of a buffer"),
    Row("coordination.alpha", _ELASTIC, "is how far devices and centre of elastic averaging move"),
    Row("coordination.chunk", _ELASTIC, "is how much elastic averaging exchanges at once"),
    Row("coordination.rule=elastic", _ELASTIC, "is the rule of elastic averaging"),
    Row("coordination.mode=elastic", ("coordination.rule=elastic",), "has a rule of its own"),
    Row("coordination.learning_rate", _NOT_ELASTIC, "is of gradients; here devices step by run.local_rate"),
    Row("coordination.base_batch", _NOT_ELASTIC, "weighs updates, as coordination.alpha does"),
    Row("coordination.quorum", _ROUNDS, "is how many updates end a round"),
    Row("coordination.quorum", ("coordination.tasks=0",), "counts devices; tasks have coordination.distinct"),
    Row("coordination.deadline", _ROUNDS, "is when a round ends in any case"),
    Row("coordination.aggregate", _ROUNDS, "compares the updates of a round"),
    Row("coordination.cohort", _ROUNDS, "is how many devices take part in a round"),
    Row("coordination.cohort", ("coordination.tasks=0",), "says who takes part, and of tasks all do"),
    Row("coordination.turns", ("coordination.cohort",), "is how long a device takes part in a cohort"),
    Row("coordination.tasks", _ROUNDS, "is how many shards a device computes in a round"),
    Row("coordination.order", ("coordination.tasks",), "is that of tasks"),
    Row("coordination.distinct", ("coordination.tasks",), "is how many tasks end a round"),
    Row("coordination.gate", _NOT_ROUNDS, "bounds who is ahead, and in rounds nobody is"),
    Row("coordination.bound", ("coordination.gate",), "is how far a gate lets devices run ahead"),
    *(Row(f"optimizer.{key}", _NOT_ELASTIC, _STEP) for key in OptimizerSettings.model_fields),
    Row("optimizer.beta1", ("optimizer.kind=momentum|nesterov|adam|adamw",), "is a momentum"),
    Row("optimizer.beta2", ("optimizer.kind=adam|adamw",), "is of the mean of squares"),
    Row("optimizer.epsilon", ("optimizer.kind=adam|adamw|adagrad",), "is added to the root of squares"),
    Row("optimizer.period", ("optimizer.schedule=step|cosine",), "is a time of a schedule"),
    Row("optimizer.factor", ("optimizer.schedule=step|plateau",), "is how much a schedule lowers the rate"),
    Row("optimizer.by", ("optimizer.warmup", "optimizer.schedule=step|cosine"), "is what times count"),
    Row("optimizer.least", ("optimizer.schedule=step|cosine|plateau",), "is how low a schedule goes"),
    Row("optimizer.patience", ("optimizer.schedule=plateau",), "is how long a schedule waits"),
    Row("run.local_rate", ("run.local_steps", *_ELASTIC, _ADAFACTOR), "is the rate of a device's own steps"),
    Row("run.local_momentum", ("run.local_steps", *_ELASTIC), "is of a device's own steps"),
    Row("run.local_momentum", ("run.local_optimizer=sgd",), "is Nesterov's, which only sgd has"),
    Row("run.local_optimizer=adam", ("run.local_steps",), "is of a device's own steps"),
    Row("run.local_optimizer=adam", _NOT_ELASTIC, "begins anew with each update"),
    Row("run.proximal", ("run.local_steps",), "draws a device's own steps back"),
    Row("run.proximal", _NOT_ELASTIC, "draws devices back, as elastic averaging itself does"),
    Row("run.balance_labels", (_ADAFACTOR,), "is of adafactor"),
    Row("compression.select", _LARGEST, "is of a selection of the largest entries"),
    Row("compression.threshold", _LARGEST, "is of a selection of the largest entries"),
    Row("compression.threshold", _NOT_ELASTIC, "is of gradients"),
    Row("compression.significance", _SIGNIFICANT, "is of a selection by significance"),
    Row("compression.significance_decay", _SIGNIFICANT, "is of a selection by significance"),
    *(
        row
        for section in ("compression", "downlink")
        for row in (
            Row(f"{section}.indices=grid", (f"{section}.values=scale",), "has the signs of the values"),
            Row(f"{section}.values=scale", (f"{section}.indices=grid",), "has no signs, which the grid has"),
        )
    ),
    Row("downlink.mode=lossy", _NOT_ELASTIC, "sends no parts of a model, which elastic averaging asks for"),
    Row("downlink.mode=lossy", ("scale.shards=0",), "compares all of the model, and shards spread it"),
    *(Row(f"downlink.{key}", _LOSSY, "is of the lossy downlink") for key in ("select", "balance")),
    Row("injection.alpha", ("injection.beta",), "is how many devices share, and injection.beta how much"),
    Row("injection.beta", ("injection.alpha",), "is how much devices share, and injection.alpha how many"),
    Row("defence.refresh", ("defence.mode=score",), "is how often the server's own gradient is computed"),
    Row("scale.ray", ("scale.shards",), "is where shards are"),
)  # fmt: skip


def refused(config: BaseModel) -> list[Row]:
    """The rows that these settings break."""
    return [
        row
        for row in ROWS
        if _holds(config, row.setting)
        and all(_is_known(config, need) for need in row.needs)
        and not any(_holds(config, need) for need in row.needs)
    ]


def markdown() -> str:
    """The table, for people."""
    lines = [f"| `{_shown(row.setting)}` | `{row.shown}` | {row.why} |" for row in ROWS]
    return "\n".join(("| setting | needs | since it |", "|---|---|---|", *lines, ""))


def _holds(config: BaseModel, text: str) -> bool:
    """Whether a setting has one of these values; without any, whether it is not its default."""
    path, equals, values = text.partition("=")
    name, _, key = path.partition(".")
    section = getattr(config, name)
    found = getattr(section, key)
    default = type(section).model_fields[key].default
    return bool(str(found) in values.split("|") if equals else found != default)


def _is_known(config: BaseModel, text: str) -> bool:
    key = text.partition("=")[0]
    return key not in OURS or _holds(config, f"{key}={OURS[key]}")


def _shown(text: str) -> str:
    """section.key = 'value' or 'another'"""
    key, equals, values = text.partition("=")
    quoted = (value if value.isdecimal() else repr(value) for value in values.split("|"))
    return f"{key} = {' or '.join(quoted)}" if equals else key
