"""All settings of a run. Each section is declared in a file of its own here, with its defaults."""

from collections.abc import Iterable, Mapping
from typing import Self

from pydantic import ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from edgeflock.shared.settings.choices import Tables
from edgeflock.shared.settings.client import ClientConfigSettings, ClientSettings
from edgeflock.shared.settings.combinations import Row, broken_rows
from edgeflock.shared.settings.coordination import ELASTIC, CoordinationSettings, DefenceSettings
from edgeflock.shared.settings.limits import LimitSettings
from edgeflock.shared.settings.model import ARRAYS, ModelSettings
from edgeflock.shared.settings.optimizer import OptimizerSettings
from edgeflock.shared.settings.run import JournalSettings, RunSettings, ScaleSettings
from edgeflock.shared.settings.settings import Section, descriptions, parse_as
from edgeflock.shared.settings.traffic import CompressionSettings, DownlinkSettings, InjectionSettings

ADAFACTOR = "adafactor"
ADAFACTOR_RATE = 0.01
"""The usual step of a device moves a parameter by this part of its tensor's RMS."""


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
    def _complete(cls, settings: object) -> object:
        """Complete the settings of a model of arrays, and of the downlink.

        Updates of arrays are differences, not gradients, so their learning rate is 1. Elastic averaging pulls
        parts of the model, which only the exact downlink sends. Model shards do not know devices' replicas.
        """
        if not isinstance(settings, dict):
            return settings
        if _is_of_arrays(settings.get("model")):
            if isinstance(run := settings.get("run"), dict) and run.get("local_optimizer") == ADAFACTOR:
                raise ValueError(
                    f'run.local_optimizer = "{ADAFACTOR}" scales gradients, and updates of a model of arrays '
                    "are differences; leave it out"
                )
            settings = {**settings, "model": {"data": "", **settings["model"]}}
            coordination = settings.get("coordination", {})
            if isinstance(coordination, dict) and coordination.get("mode") != ELASTIC:
                settings["coordination"] = {"learning_rate": 1.0, **coordination}
        settings = _with_optimizer(settings)
        downlink = settings.get("downlink", {})
        if not isinstance(downlink, dict):
            return settings
        coordination, scale = settings.get("coordination"), settings.get("scale")
        elastic = isinstance(coordination, dict) and coordination.get("mode") == ELASTIC
        sharded = isinstance(scale, dict) and scale.get("shards", 0) not in (0, "0")
        if not elastic and not sharded:
            return settings
        return {**settings, "downlink": {"mode": "exact", **downlink}}

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if wrong := [_error_of(row, self) for row in broken_rows(self)]:
            raise ValidationError.from_exception_data("settings", wrong)
        self.optimizer.end(self.run.updates)
        return self


def _error_of(row: Row, config: Config) -> InitErrorDetails:
    """Convert a broken row to pydantic's error at its setting."""
    section, _, key = row.key.partition(".")
    reason = PydanticCustomError("combination", "{text}", {"text": f"it {row.reason}; {row.remedy}"})
    return InitErrorDetails(type=reason, loc=(section, key), input=getattr(getattr(config, section), key))


def _with_optimizer(settings: dict[str, object]) -> dict[str, object]:
    """Set the devices' optimizer to Adafactor, at its own rate, unless `settings` need another one."""
    names = ("run", "coordination", "optimizer", "compression")
    run, coordination, optimizer, compression = (settings.get(name, {}) for name in names)
    if not isinstance(run, dict) or not isinstance(coordination, dict):
        return settings
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
            return settings
    elif chosen != ADAFACTOR:
        return settings
    if coordination.get("mode") != ELASTIC:
        coordination = {"learning_rate": ADAFACTOR_RATE, **coordination}
    rate = coordination.get("learning_rate", ADAFACTOR_RATE)
    run = {"local_optimizer": ADAFACTOR, "local_rate": rate, **run}
    return {**settings, "run": run, "coordination": coordination}


def _is_of_arrays(model: object) -> bool:
    return isinstance(model, dict) and str(model.get("module")).startswith(ARRAYS)


def parse(
    toml: str = "",
    source: str = "edgeflock.toml",
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    tables: Tables | None = None,
) -> Config:
    """Read the configuration: `toml` (the text of `source`), then `environ`, then `overrides` (key=value).

    EDGEFLOCK_TOKEN in the environment is an alias of EDGEFLOCK_CLIENT__TOKEN. `tables` are those of the end
    that reads it; settings whose table is missing are not checked. Raises ConfigError.
    """
    if environ is not None and (token := environ.get("EDGEFLOCK_TOKEN")):
        environ = {"EDGEFLOCK_CLIENT__TOKEN": token, **environ}
    return parse_as(Config, toml, source, environ, overrides, tables)


def from_sections(document: Mapping[str, object], source: str, tables: Tables | None = None) -> Config:
    """Read the configuration from sections as parsed from TOML; `source` names their receiver in errors.

    Raises ConfigError.
    """
    return parse_as(Config, "", source, tables=tables, document=document)


def describe() -> str:
    """Return every key with its default as a TOML file."""
    defaults = Config()
    lines = []
    for name, section in defaults:
        lines += [f"[{name}]  # {type(section).__doc__}"]
        told = descriptions(type(section))
        for key, value in section:
            text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
            lines.append(f"{key} = {text}" + (f"  # {told[key]}" if key in told else ""))
        lines.append("")
    return "\n".join(lines)
