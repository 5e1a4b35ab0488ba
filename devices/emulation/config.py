"""The fleet file: a run's settings, and the devices that take part in it.

[model] [local] [coordination] [compression] [end] ...     as for the server
[fleet]                                                    how many devices, on what data
[devices.NAME]                                             one class of devices each
"""

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from edgeflock.server.hosting.choices import CHOICES
from edgeflock.shared.data.rates import HIGH, LOW, curve
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config
from edgeflock.shared.settings.settings import Section, parse_as

PROFILES = ("raspberry-pi-4", "raspberry-pi-zero-2w", "jetson-nano", "jetson-orin", "laptop")

_Finite = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


def _split(value: object) -> object:
    """Split the text of `--set fleet.seeds=0,1,2` at its commas."""
    return value.split(",") if isinstance(value, str) else value


class FleetSettings(Section):
    """The [fleet] section: settings of the emulation."""

    devices: Annotated[int, Field(ge=1, le=100_000)] = Field(20, description="how many")
    data: str = Field("digits:", description="training data, dealt out evenly; or an environment, gym:...")
    samples: Annotated[int, Field(ge=0)] = Field(0, description="use only so many of it; 0: all")
    labels: Annotated[int, Field(ge=0)] = Field(0, description="a device gets so many of the classes; 0: all")
    holds: Annotated[int, Field(ge=0)] = Field(
        0,
        description="for tasks: shards a device holds, of as many as there are devices; "
        "0: coordination.tasks",
    )
    seeds: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=1 << 31)], ...],
        BeforeValidator(_split),
        Field(min_length=1),
    ] = Field((0,), description="one run each")
    evaluate_every: Annotated[int, Field(ge=1)] = Field(500, description="updates")
    evaluate_unaveraged: bool = Field(
        False, description="evaluate the newest version as well as the averaged model (a metric)"
    )
    seconds: _Finite = Field(0.0, description="stop at this virtual time; 0: never")


class Profile(Section):
    """What a type of device can do. devices/profiles/*.toml has the profiles, with sources."""

    gflops: _Positive
    overhead_ms: _Finite
    spread: _Finite
    uplink_mbps: _Positive
    downlink_mbps: _Positive
    latency_ms: _Finite


class DeviceClass(Section):
    """Devices of one kind. Unset values come from the profile. Without one, the network takes no time."""

    profile: Literal["", "raspberry-pi-4", "raspberry-pi-zero-2w", "jetson-nano", "jetson-orin", "laptop"] = (
        Field("", description="a shipped profile")
    )
    data: str = Field("", description="an environment of its own, e.g. gym:CartPole-v1; empty: fleet.data")
    share: _Positive = Field(1.0, description="of the fleet, relative to the other classes")
    step_ms: _Positive | None = Field(None, description="mean time of one step; default: from the profile")
    timing: Literal["lognormal", "exponential"] = Field("lognormal", description="distribution of step times")
    spread: _Finite | None = Field(None, description="standard deviation / mean of lognormal step times")
    uplink_mbps: _Positive | None = None
    downlink_mbps: _Positive | None = None
    latency_ms: _Finite | None = Field(None, description="one way")
    sample_ms: _Finite = Field(0.0, description="more of it for each sample of the step")
    rate: Annotated[str, BeforeValidator(str)] = Field(
        "0",
        description="samples per second streaming in: a number; uniform(mean,sd) or normal(mean,sd), drawn "
        "for each device; sine:12..108/60s or square:500..0/30s, each device somewhere else in it; "
        "steps:0:500,30:20. 0: all are there",
    )
    batch_min: Annotated[int, Field(ge=1)] = Field(LOW, description="of a stream, as of a client")
    batch_max: Annotated[int, Field(ge=1)] = Field(HIGH, description="of a stream, as of a client")
    buffer: Literal["truncation", "persistence"] = Field(
        "truncation", description="of a stream: keep the last second, or everything"
    )

    @field_validator("rate")
    @classmethod
    def _check_rate(cls, rate: str) -> str:
        try:
            curve(rate, np.random.default_rng(0))
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return rate

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.batch_min > self.batch_max:
            raise ValueError(f"batch_min = {self.batch_min} is above batch_max = {self.batch_max}")
        return self

    shares: bool = Field(False, description="share samples with others that share, if [injection] is on")
    crash: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="probability, after each push, of stopping for ever"
    )
    session_s: _Finite = Field(0.0, description="mean time until it leaves; 0: never leaves")
    away_s: _Finite = Field(0.0, description="mean time until it is back")


class FleetFile(Config):
    """Everything that a fleet file can set."""

    fleet: FleetSettings = FleetSettings()
    devices: dict[str, DeviceClass] = {}

    @property
    def classes(self) -> dict[str, DeviceClass]:
        return self.devices or {"laptop": DeviceClass(profile="laptop")}


def parse(
    toml: str, source: str, overrides: Iterable[str] = (), settings: Mapping[str, object] | None = None
) -> FleetFile:
    """Return the settings in `toml`, the text of `source`, after `overrides` (key=value).

    `settings`, which have the types of TOML, replace the text. Raises ConfigError.
    """
    file = parse_as(FleetFile, toml, source, {}, overrides, CHOICES, settings)
    for name, kind in file.classes.items():
        if (kind.session_s > 0) != (kind.away_s > 0):
            raise ConfigError(
                f"{source}: devices.{name}: session_s = {kind.session_s} and away_s = {kind.away_s}: "
                "a device that leaves needs both, one that stays neither"
            )
        if not kind.profile and kind.step_ms is None:
            raise ConfigError(f"{source}: devices.{name} needs step_ms, or a profile: {', '.join(PROFILES)}")
    tasks, holds, devices = file.coordination.tasks, file.fleet.holds, file.fleet.devices
    if max(holds, tasks) > devices:
        entry = f"fleet.holds = {holds}" if holds else f"coordination.tasks = {tasks}"
        raise ConfigError(f"{source}: {entry}: there are only {devices} shards, one a device (fleet.devices)")
    if tasks and any(kind.rate != "0" for kind in file.classes.values()):
        raise ConfigError(
            f"{source}: coordination.tasks = {tasks}: a stream is one device's alone; set no "
            "devices.NAME.rate"
        )
    if file.scale.shards:
        raise ConfigError(
            f"{source}: scale.shards = {file.scale.shards}: the model of an emulated fleet is in one "
            "process; leave it out"
        )
    if file.injection.alpha and not any(kind.shares for kind in file.classes.values()):
        raise ConfigError(
            f"{source}: injection.alpha = {file.injection.alpha:g}: no device shares samples; set "
            f"devices.{next(iter(file.classes))}.shares = true, or leave injection out"
        )
    if len(set(file.fleet.seeds)) < len(file.fleet.seeds):
        raise ConfigError(f"{source}: fleet.seeds = {list(file.fleet.seeds)}: each may be there once")
    if len(file.classes) > file.fleet.devices:
        raise ConfigError(
            f"{source}: fleet.devices = {file.fleet.devices}: fewer than the {len(file.classes)} classes"
        )
    fewest = file.coordination.quorum * file.coordination.groups
    if file.coordination.traits.private and file.fleet.devices < fewest:
        raise ConfigError(
            f"{source}: fleet.devices = {file.fleet.devices}: no round begins with fewer than {fewest}"
        )
    if not (file.end.updates or file.fleet.seconds or file.privacy.epsilon or file.privacy.participations):
        raise ConfigError(f"{source}: the run has no end: set end.updates or fleet.seconds")
    return file


def load_profile(name: str) -> Profile:
    text = resources.files("edgeflock.devices").joinpath(f"profiles/{name}.toml").read_text("utf-8")
    return Profile.model_validate(tomllib.loads(text))


def headcount(classes: dict[str, DeviceClass], devices: int) -> dict[str, int]:
    """Return how many devices each class has: by share, at least one, the rest by largest remainder."""
    total = sum(kind.share for kind in classes.values())
    exact = {name: kind.share / total * devices for name, kind in classes.items()}
    counts = {name: max(1, int(share)) for name, share in exact.items()}
    while sum(counts.values()) > devices:
        counts[max(counts, key=lambda name: (counts[name], -classes[name].share))] -= 1
    for name in sorted(exact, key=lambda name: exact[name] - counts[name], reverse=True):
        counts[name] += sum(counts.values()) < devices
    return counts
