"""Settings of a run that need other settings, and the reason: a table with a row for each.

    Row("local.proximal", ("local.steps",), "draws a device's own steps back")

reads: unless local.proximal is its default, it needs local.steps. "key=a|b" is one of two values. One of
several needs is enough. Rows are silent where another package's choice is set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pydantic import BaseModel

from edgeflock.shared.settings.modes import MODES, Mode
from edgeflock.shared.settings.optimizer import OptimizerSettings

BUILTIN = {
    "coordination.mode": "|".join(MODES),
    "defence.mode": "none|clip|score",
    "downlink.mode": "lossy|exact",
    "optimizer.kind": "sgd|momentum|nesterov|adam|adamw",
    "optimizer.schedule": "constant|cosine",
}
"""The built-in choices. Rows do not apply to others, whose needs are unknown."""


@dataclass(frozen=True, slots=True)
class Row:
    """A setting that needs another one."""

    setting: str
    needs: tuple[str, ...]
    """At least one of these must hold."""
    reason: str
    """Continues a sentence that begins with the setting's name."""

    @property
    def key(self) -> str:
        """section.key of the setting."""
        return self.setting.partition("=")[0]

    @property
    def remedy(self) -> str:
        without = f"leave {self.key} out" if self.setting == self.key else f"choose another {self.key}"
        return f"set {self.needs_text}, or {without}"

    @property
    def needs_text(self) -> str:
        """`needs` as text."""
        return " or ".join(map(_shown, self.needs))


def _modes(has_trait: Callable[[Mode], bool]) -> tuple[str]:
    """Return the need of one of the modes that have a trait."""
    return (f"coordination.mode={'|'.join(name for name, mode in MODES.items() if has_trait(mode))}",)


def _refusals(mode: str, *others: tuple[str, str]) -> tuple[Row, ...]:
    """Return the rows of what a mode of privacy needs: (need, reason)."""
    return tuple(Row(f"privacy.mode={mode}", (need,), reason) for need, reason in others)


_ELASTIC, _NOT_ELASTIC = _modes(lambda mode: mode.elastic), _modes(lambda mode: not mode.elastic)
_BUFFERS = _modes(lambda mode: mode.buffers)
_COHORT, _TASKS = _modes(lambda mode: mode.cohort), _modes(lambda mode: mode.tasks)
_NOT_TASKS = _modes(lambda mode: not mode.tasks)
_BY_DEVICE = _modes(lambda mode: mode.rounds and not mode.tasks)
_ROUNDS, _NOT_ROUNDS = _modes(lambda mode: mode.rounds), _modes(lambda mode: not mode.rounds)
_ALONE = _modes(lambda mode: not (mode.tasks or mode.elastic or mode.private))
_SUMMED, _NOT_SUMMED = _modes(lambda mode: mode.private), _modes(lambda mode: not mode.private)
_SINGLE = "and the server of secure sums sees no single update"
_ADAFACTOR = "local.optimizer=adafactor"
_LARGEST, _SIGNIFICANT = ("compression.selection=largest",), ("compression.selection=significance",)
_LOSSY = ("downlink.mode=lossy",)
_PRIVATE, _LOCAL = ("privacy.mode=server|local",), ("privacy.mode=local",)
_STEP = "applies to the server's step, and elastic averaging moves the model instead"

ROWS: tuple[Row, ...] = (
    Row("coordination.buffer", _BUFFERS, "is how many updates of a buffer make a step"),
    Row("coordination.moving_rate", _ELASTIC, "is how far devices and the centre of elastic averaging move"),
    Row("coordination.chunk", _ELASTIC, "is the size of an exchange in elastic averaging"),
    Row("coordination.rule=elastic", _ELASTIC, "is the rule of elastic averaging"),
    Row("coordination.mode=elastic", ("coordination.rule=elastic",), "has its own rule"),
    Row("coordination.learning_rate", _NOT_ELASTIC, "scales gradients; here devices use local.rate"),
    Row("coordination.base_batch", _NOT_ELASTIC, "weighs updates; here coordination.moving_rate does"),
    Row("coordination.quorum", _BY_DEVICE, "is the number of devices whose updates end a round"),
    Row("coordination.deadline", (*_ROUNDS, "coordination.cohort"), "is the time limit of a round or turn"),
    Row("coordination.aggregate", _ROUNDS, "compares the updates of a round"),
    Row("coordination.cohort", _COHORT, "is the number of devices that take part at a time"),
    Row("coordination.mode=cohort", ("coordination.cohort",), "has so many devices in a round"),
    Row("coordination.cohort_rounds", ("coordination.cohort",), "is how long a device stays in a cohort"),
    Row("coordination.mode=private", ("coordination.rule=none",), "sums updates of one version"),
    Row("coordination.mode=private", ("coordination.cohort",), "has so many devices in a round"),
    Row("coordination.threshold", _SUMMED, "is how many devices must stay in a secure sum"),
    Row("coordination.bits", _SUMMED, "is the size of a summed integer"),
    Row("coordination.groups", _SUMMED, "is how many secure sums a round has"),
    Row("coordination.groups", ("coordination.aggregate",), "is how many sums an aggregate compares"),
    Row(
        "coordination.aggregate",
        (*_NOT_SUMMED, "coordination.groups"),
        f"compares single updates, {_SINGLE}, or the sums of groups",
    ),
    Row("coordination.base_batch", _NOT_SUMMED, f"weighs single updates, {_SINGLE}"),
    Row("defence.mode", _NOT_SUMMED, f"judges single updates, {_SINGLE}"),
    Row("local.optimizer=adafactor", _NOT_SUMMED, "has each device report moments of its own gradients"),
    Row("evaluation.on_devices", _NOT_SUMMED, "has each device report results on its own data"),
    Row("injection.alpha", _NOT_SUMMED, "sends samples to other devices"),
    Row("scale.shards", _NOT_SUMMED, "splits a model, and a secure sum is of all of it"),
    *(
        Row(f"compression.{key}", _NOT_SUMMED, f"is of single updates, {_SINGLE}")
        for key in ("selection", "balance", "threshold")
    ),
    Row("coordination.tasks", _TASKS, "is the number of shards that a device computes in a round"),
    Row("coordination.mode=tasks", ("coordination.tasks",), "has a device compute so many shards in a round"),
    Row("coordination.distinct", _TASKS, "is the number of tasks that end a round"),
    Row("coordination.gate", _NOT_ROUNDS, "limits how far devices are ahead, and in rounds no device is"),
    Row("coordination.bound", ("coordination.gate",), "is the limit of a gate"),
    Row("coordination.gate", ("coordination.cohort=0",), "would wait for devices that wait for their turn"),
    *(Row(f"optimizer.{key}", _NOT_ELASTIC, _STEP) for key in OptimizerSettings.model_fields),
    Row("optimizer.beta1", ("optimizer.kind=momentum|nesterov|adam|adamw",), "is a momentum"),
    Row("optimizer.beta2", ("optimizer.kind=adam|adamw",), "is the decay of a mean of squares"),
    Row("optimizer.period", ("optimizer.schedule=cosine",), "is a duration of a schedule"),
    Row("optimizer.schedule_unit", ("optimizer.warmup", "optimizer.schedule=cosine"), "is a time unit"),
    Row("model.personal", _NOT_ELASTIC, "are layers of a device, and elastic averaging exchanges all"),
    Row("model.personal", _NOT_TASKS, "learn a device's data, and tasks are of any data"),
    Row("model.personal", ("defence.mode=none|clip",), "are not on the server, which thus has no gradients"),
    Row("model.lora", ("model.personal=[]",), "trains adapters alone, and no layers of a device"),
    Row(
        "local.rate",
        ("local.steps", *_ELASTIC, _ADAFACTOR, "model.personal"),
        "is the rate of a device's own steps",
    ),
    Row("local.momentum", ("local.steps", *_ELASTIC), "applies to a device's own steps"),
    Row("local.momentum", ("local.optimizer=sgd",), "is Nesterov momentum, which only sgd has"),
    Row("local.optimizer=adam", ("local.steps",), "applies to a device's own steps"),
    Row("local.optimizer=adam", _NOT_ELASTIC, "resets its means with each update"),
    Row("local.proximal", ("local.steps",), "limits a device's own steps"),
    Row("local.proximal", _NOT_ELASTIC, "keeps devices near the model, as elastic averaging itself does"),
    Row("local.balance_labels", (_ADAFACTOR,), "works only with adafactor"),
    Row("compression.select", _LARGEST, "applies to a selection of the largest entries"),
    Row("compression.threshold", _LARGEST, "applies to a selection of the largest entries"),
    Row("compression.threshold", _NOT_ELASTIC, "applies to gradients"),
    Row("compression.significance", _SIGNIFICANT, "applies to a selection by significance"),
    Row("compression.significance_decay", _SIGNIFICANT, "applies to a selection by significance"),
    Row("compression.indices=grid", ("compression.values=scale",), "codes the signs of the values"),
    Row("compression.values=scale", ("compression.indices=grid",), "codes no signs; only grid does"),
    Row("downlink.mode=lossy", _NOT_ELASTIC, "sends no parts of a model, which elastic averaging needs"),
    Row("downlink.mode=lossy", ("scale.shards=0",), "compares the whole model, and each shard has a part"),
    Row("downlink.select", _LOSSY, "applies to the lossy downlink"),
    Row("fleet.holds", _TASKS, "is the number of shards that each device of an emulated fleet holds"),
    Row("injection.alpha", ("injection.beta",), "is how many devices share, and beta how much"),
    Row("injection.beta", ("injection.alpha",), "is how much devices share, and alpha how many"),
    Row("server.browsers", _ALONE, "lets browsers take part, which do no tasks, exchanges or secret sums"),
    Row("server.browsers", ("model.lora.targets=[]",), "lets browsers take part, which train no adapters"),
    Row("server.browsers", ("privacy.mode=none|server",), "lets browsers take part, which add no noise"),
    Row("server.browsers", ("server.client_certificates=",), "lets pages take part, which show none"),
    *(
        Row(f"privacy.{key}", _PRIVATE, "is a part of differential privacy")
        for key in ("clip", "noise", "epsilon", "delta", "participations")
    ),
    Row("privacy.devices", ("privacy.mode=server",), "is the number of devices that are to be hidden"),
    Row("privacy.tree", ("privacy.mode=server",), "is the noise of the server's steps"),
    Row(
        "privacy.tree",
        ("coordination.mode=buffer",),
        "has a device wait for the next tree, and a round waits for every device",
    ),
    Row("privacy.examples", _LOCAL, "is the number of examples of a device"),
    *_refusals(
        "server",
        ("coordination.mode=buffer|rounds|cohort|private", "adds noise to sums of updates of bounded norms"),
        ("coordination.aggregate=mean", "bounds what a device adds to a sum; a median has no such bound"),
        ("coordination.base_batch=0", "counts all updates alike: a device would choose its own weight"),
        ("coordination.gate=none", "has devices wait for the next tree, which a gate would wait for"),
        ("defence.mode=none", "clips by a bound known before; a defence's bound depends on others' updates"),
        ("scale.shards=0", "adds noise to the sum of a whole update"),
    ),
    Row(
        "privacy.mode=server",
        ("coordination.rule=sqrt|tau|none", *_ROUNDS),
        "needs weights of at most 1 that no other device's data decide",
    ),
    Row(
        "coordination.mode=rounds",
        ("coordination.quorum", "privacy.mode=none|local"),
        "divides a private sum by that number of updates, as the number that came is not for all to know",
    ),
    *_refusals(
        "local",
        (_NOT_ELASTIC[0], "adds noise to gradients, and elastic averaging exchanges parameters"),
        (_NOT_SUMMED[0], "adds noise to gradients, and secret sums have the losses as well, without noise"),
        (_NOT_TASKS[0], "counts how often a device uses its examples, which tasks give to several devices"),
        ("local.momentum=0.0", "counts the noise of each step once, and a momentum starts again"),
        ("model.personal=[]", "adds noise to what a device sends, not to its own layers"),
    ),
    *(
        row
        for mode in ("server", "local")
        for row in _refusals(
            mode,
            ("local.optimizer=sgd|adam", "hides what adafactor's devices report: second moments and labels"),
            ("evaluation.on_devices=0", "hides results on devices' own data, which carry no noise"),
            ("injection.alpha=0.0", "hides samples, which devices would share"),
            ("callbacks.on_update=", "hides single updates, which carry no noise"),
        )
    ),
    Row("scale.ray", ("scale.shards",), "is the cluster of the shards"),
)  # fmt: skip


def broken_rows(config: BaseModel) -> list[Row]:
    """Return the rows that these settings break."""
    return [
        row
        for row in ROWS
        if _holds(config, row.setting)
        and all(_is_known(config, need) for need in row.needs)
        and not any(_holds(config, need) for need in row.needs)
    ]


def markdown() -> str:
    lines = [f"| `{_shown(row.setting)}` | `{row.needs_text}` | {row.reason} |" for row in ROWS]
    return "\n".join(("| setting | needs | because it |", "|---|---|---|", *lines, ""))


def _holds(config: BaseModel, text: str) -> bool:
    """Whether a setting has one of these values; without any, whether it is not its default."""
    path, equals, values = text.partition("=")
    name, *keys, last = path.split(".")
    section = getattr(config, name, None)
    if section is None:  # only emulated fleets have [fleet], and only servers [server]
        return False
    section = reduce(getattr, keys, section)
    found, default = getattr(section, last), type(section).model_fields[last].default
    return bool(str(found) in values.split("|") if equals else found != default)


def _is_known(config: BaseModel, text: str) -> bool:
    key = text.partition("=")[0]
    return key not in BUILTIN or _holds(config, f"{key}={BUILTIN[key]}")


def _shown(text: str) -> str:
    """Return text such as: section.key = 'value' or 'another'."""
    key, equals, values = text.partition("=")
    quoted = (value if value.isdecimal() or value == "[]" else repr(value) for value in values.split("|"))
    return f"{key} = {' or '.join(quoted)}" if equals else key
