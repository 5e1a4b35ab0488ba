"""All settings of a run. Each section is declared in a file of its own here, with its defaults."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from edgeflock.shared.settings.choices import Tables
from edgeflock.shared.settings.client import ClientConfigSettings, ClientSettings
from edgeflock.shared.settings.combinations import Row, broken_rows
from edgeflock.shared.settings.coordination import CoordinationSettings, DefenceSettings
from edgeflock.shared.settings.limits import LimitSettings
from edgeflock.shared.settings.model import ARRAYS, LoraSettings, ModelSettings
from edgeflock.shared.settings.modes import DEFAULT, Mode, traits_of
from edgeflock.shared.settings.optimizer import OptimizerSettings
from edgeflock.shared.settings.presets import PRESETS
from edgeflock.shared.settings.privacy import PrivacySettings
from edgeflock.shared.settings.run import CallbackSettings, EndSettings, EvaluationSettings, LocalSettings
from edgeflock.shared.settings.server import JournalSettings, ScaleSettings, ServerSettings
from edgeflock.shared.settings.settings import Section, descriptions, parse_as
from edgeflock.shared.settings.traffic import CompressionSettings, DownlinkSettings, InjectionSettings

ADAFACTOR = "adafactor"
ADAFACTOR_RATE, ADAPTERS_RATE = 0.01, 0.03
"""The usual step of a device moves a parameter by this part of its tensor's RMS. The second is for adapters,
of which half begin with zeros (docs/results/finetune.md)."""
ADAFACTOR_DEVICES = 10
"""The first rate fits so many devices at a time, or more. Updates of fewer are less stale, and the best rate
is higher (docs/cohorts.md)."""


class Config(Section):
    """Everything that can be set."""

    server: ServerSettings = ServerSettings()
    journal: JournalSettings = JournalSettings()
    scale: ScaleSettings = ScaleSettings()
    model: ModelSettings = ModelSettings()
    local: LocalSettings = LocalSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    compression: CompressionSettings = CompressionSettings()
    defence: DefenceSettings = DefenceSettings()
    privacy: PrivacySettings = PrivacySettings()
    downlink: DownlinkSettings = DownlinkSettings()
    injection: InjectionSettings = InjectionSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    callbacks: CallbackSettings = CallbackSettings()
    end: EndSettings = EndSettings()
    limits: LimitSettings = LimitSettings()
    client: ClientSettings = ClientSettings()
    client_config: ClientConfigSettings = ClientConfigSettings()

    @property
    def takes_turns(self) -> bool:
        """Whether devices wait for their turn: a cohort's, or that of their privacy budget."""
        return self.coordination.cohort > 0 or self.privacy.mode != "none"

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, settings: object) -> object:
        """Complete the settings of a model of arrays, and of the downlink.

        Updates of arrays are differences, not gradients, so their learning rate is 1. Elastic averaging pulls
        parts of the model, which only the exact downlink sends. Model shards do not know devices' replicas.
        """
        if not isinstance(settings, dict):
            return settings
        traits = traits_of(_section_of(settings, "coordination").get("mode", DEFAULT))
        if str(_section_of(settings, "model").get("module")).startswith(ARRAYS):
            if _section_of(settings, "local").get("optimizer") == ADAFACTOR:
                raise ValueError(
                    f'local.optimizer = "{ADAFACTOR}" scales gradients, and updates of a model of arrays '
                    "are differences; leave it out"
                )
            settings = _with_defaults(settings, "model", {"data": ""})
            if not traits.elastic:
                settings = _with_defaults(settings, "coordination", {"learning_rate": 1.0})
        if _uses_adafactor(settings, traits):
            usual = _adafactor_rate(settings, traits)
            if not traits.elastic:
                settings = _with_defaults(settings, "coordination", {"learning_rate": usual})
            rate = _section_of(settings, "coordination").get("learning_rate", usual)
            settings = _with_defaults(settings, "local", {"optimizer": ADAFACTOR, "rate": rate})
        sharded = _section_of(settings, "scale").get("shards", 0) not in (0, "0")
        downlink = "exact" if sharded else traits.downlink
        return settings if downlink == "lossy" else _with_defaults(settings, "downlink", {"mode": downlink})

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if wrong := [_error_of(row, self) for row in broken_rows(self)]:
            raise ValidationError.from_exception_data("settings", wrong)
        self.optimizer.end(self.end.updates)
        return self


def _error_of(row: Row, config: Config) -> InitErrorDetails:
    """Convert a broken row to pydantic's error at its setting."""
    section, _, key = row.key.partition(".")
    reason = PydanticCustomError("combination", "{text}", {"text": f"it {row.reason}; {row.remedy}"})
    return InitErrorDetails(type=reason, loc=(section, key), input=getattr(getattr(config, section), key))


def _section_of(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the section `name` as it was given, before any check; empty if there is none."""
    section = settings.get(name)
    return dict(section) if isinstance(section, dict | Section) else {}


def _with_defaults(settings: dict[str, Any], name: str, defaults: Mapping[str, object]) -> dict[str, Any]:
    """Return `settings` with `defaults` of the section `name`."""
    section = settings.get(name, {})
    return {**settings, name: {**defaults, **section}} if isinstance(section, dict) else settings


def _uses_adafactor(settings: dict[str, Any], traits: Mode) -> bool:
    """Whether devices use Adafactor: the settings say so, or need no other optimizer."""
    local, coordination = _section_of(settings, "local"), _section_of(settings, "coordination")
    if "optimizer" in local:
        return bool(local["optimizer"] == ADAFACTOR)
    return (
        traits.adafactor
        and "learning_rate" not in coordination
        and not {"rate", "momentum"} & local.keys()
        and _section_of(settings, "optimizer").get("kind", "sgd") == "sgd"
        and _section_of(settings, "compression").get("selection", "largest") == "largest"
        and _section_of(settings, "privacy").get("mode", "none") == "none"  # devices report moments
    )


def _adafactor_rate(settings: dict[str, Any], traits: Mode) -> float:
    """Return the learning rate of Adafactor if the settings name none."""
    if _section_of(settings, "model").get("lora", {}) not in ({}, "{}", "", LoraSettings()):
        return ADAPTERS_RATE
    try:
        cohort = TypeAdapter(int).validate_python(_section_of(settings, "coordination").get("cohort", 0))
    except ValidationError:  # the section refuses it
        cohort = 0
    if traits.gathers or not traits.cohort or not 0 < cohort < ADAFACTOR_DEVICES:
        return ADAFACTOR_RATE
    return round(ADAFACTOR_RATE * math.cbrt(ADAFACTOR_DEVICES / max(3, cohort)), 4)


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
    """Return every key with its default as a TOML file, which sets none of them.

    Many defaults depend on whether another setting is set. So the keys are comments.
    """
    defaults = Config()
    presets = " or ".join(f'preset = "{name}"' for name in PRESETS)
    lines = [
        "# To change a setting, remove the '#' before it.",
        f"# To set several at once, write here: {presets}",
        "",
    ]
    for name, section in defaults:
        lines += [f"[{name}]  # {type(section).__doc__}"]
        texts = descriptions(type(section))
        for key, value in section:
            lines.append(f"# {key} = {_toml(value)}" + (f"  # {texts[key]}" if key in texts else ""))
        lines.append("")
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, Section):
        return f"{{{', '.join(f'{key} = {_toml(one)}' for key, one in value)}}}"
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
