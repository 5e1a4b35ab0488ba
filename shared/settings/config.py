"""All settings of a run. Each section is declared in a file of its own here, with its defaults."""

from collections.abc import Iterable, Mapping
from typing import Self

from pydantic import ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from edgeflock.shared.settings.choices import Tables
from edgeflock.shared.settings.client import ClientConfigSettings, ClientSettings
from edgeflock.shared.settings.combinations import Row, refused
from edgeflock.shared.settings.coordination import ELASTIC, CoordinationSettings, DefenceSettings
from edgeflock.shared.settings.limits import LimitSettings
from edgeflock.shared.settings.model import ARRAYS, ModelSettings
from edgeflock.shared.settings.optimizer import OptimizerSettings
from edgeflock.shared.settings.run import JournalSettings, RunSettings, ScaleSettings
from edgeflock.shared.settings.settings import Section, parse_as
from edgeflock.shared.settings.traffic import CompressionSettings, DownlinkSettings, InjectionSettings

ADAFACTOR = "adafactor"
ADAFACTOR_RATE = 0.01
"""Of its tensor's RMS: how far a usual step of a device moves a parameter."""


class Config(Section):
    """Everything that can be set."""

    run: RunSettings = RunSettings()
    journal: JournalSettings = JournalSettings()
    scale: ScaleSettings = ScaleSettings()
    model: ModelSettings = ModelSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    compression: CompressionSettings = CompressionSettings()
    defence: DefenceSettings = DefenceSettings()
    downlink: DownlinkSettings = DownlinkSettings()
    injection: InjectionSettings = InjectionSettings()
    limits: LimitSettings = LimitSettings()
    client: ClientSettings = ClientSettings()
    client_config: ClientConfigSettings = ClientConfigSettings()

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: object) -> object:
        """What goes with a model of arrays, whose updates are what training changed, not gradients; and
        elastic averaging asks for parts of the model, which only the exact downlink knows, as shards do not
        know what each device holds.
        """
        if not isinstance(given, dict):
            return given
        if _is_of_arrays(given.get("model")):
            if isinstance(run := given.get("run"), dict) and run.get("local_optimizer") == ADAFACTOR:
                raise ValueError(
                    f'run.local_optimizer = "{ADAFACTOR}" scales gradients, and updates of a model of arrays '
                    "are what training changed; leave it out"
                )
            given = {**given, "model": {"data": "", **given["model"]}}
            how = given.get("coordination", {})
            if isinstance(how, dict) and how.get("mode") != ELASTIC:
                given["coordination"] = {"learning_rate": 1.0, **how}
        given = _with_optimizer(given)
        downlink = given.get("downlink", {})
        if not isinstance(downlink, dict):
            return given
        how, scale = given.get("coordination"), given.get("scale")
        elastic = isinstance(how, dict) and how.get("mode") == ELASTIC
        sharded = isinstance(scale, dict) and scale.get("shards", 0) not in (0, "0")
        if not elastic and not sharded:
            return given
        return {**given, "downlink": {"mode": "exact", **downlink}}

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if wrong := [_line_of(row, self) for row in refused(self)]:
            raise ValidationError.from_exception_data("settings", wrong)
        self.optimizer.end(self.run.updates)
        return self


def _line_of(row: Row, config: Config) -> InitErrorDetails:
    """What a row says of these settings, at the setting that it is of."""
    section, _, key = row.key.partition(".")
    reason = PydanticCustomError("combination", "{text}", {"text": f"it {row.why}; {row.remedy}"})
    return InitErrorDetails(type=reason, loc=(section, key), input=getattr(getattr(config, section), key))


def _with_optimizer(given: dict[str, object]) -> dict[str, object]:
    """The devices' optimizer is Adafactor, at its own rate, unless what is given asks for another."""
    names = ("run", "coordination", "optimizer", "compression")
    run, coordination, optimizer, compression = (given.get(name, {}) for name in names)
    if not isinstance(run, dict) or not isinstance(coordination, dict):
        return given
    chosen = run.get("local_optimizer")
    if chosen is None:
        other = (
            {"learning_rate"} & coordination.keys()
            or {"local_rate", "local_momentum"} & run.keys()
            or coordination.get("mode", "async") != "async"
            or (isinstance(optimizer, dict) and optimizer.get("kind", "sgd") != "sgd")
            or (isinstance(compression, dict) and compression.get("selection", "largest") != "largest")
        )
        if other:
            return given
    elif chosen != ADAFACTOR:
        return given
    if coordination.get("mode") != ELASTIC:
        coordination = {"learning_rate": ADAFACTOR_RATE, **coordination}
    rate = coordination.get("learning_rate", ADAFACTOR_RATE)
    run = {"local_optimizer": ADAFACTOR, "local_rate": rate, **run}
    return {**given, "run": run, "coordination": coordination}


def _is_of_arrays(model: object) -> bool:
    return isinstance(model, dict) and str(model.get("module")).startswith(ARRAYS)


def parse(
    toml: str = "",
    source: str = "edgeflock.toml",
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    tables: Tables | None = None,
) -> Config:
    """The configuration: `toml` (the text of `source`), then `environ`, then `overrides` (key=value).

    The environment's EDGEFLOCK_TOKEN is another word for its EDGEFLOCK_CLIENT__TOKEN.
    `tables` are those of the end that reads it; what they would say of a setting is not looked at without.
    Raises ConfigError.
    """
    if environ is not None and (token := environ.get("EDGEFLOCK_TOKEN")):
        environ = {"EDGEFLOCK_CLIENT__TOKEN": token, **environ}
    return parse_as(Config, toml, source, environ, overrides, tables)


def taken(given: Mapping[str, object], source: str, tables: Tables | None = None) -> Config:
    """The configuration of sections as TOML would have them, which were given to `source`. Raises
    ConfigError.
    """
    return parse_as(Config, "", source, tables=tables, given=given)


def describe() -> str:
    """Every key with its default as a TOML file."""
    defaults = Config()
    lines = []
    for name, section in defaults:
        lines += [f"[{name}]  # {type(section).__doc__}"]
        for key, info in type(section).model_fields.items():
            value = getattr(section, key)
            text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
            lines.append(f"{key} = {text}" + (f"  # {info.description}" if info.description else ""))
        lines.append("")
    return "\n".join(lines)
