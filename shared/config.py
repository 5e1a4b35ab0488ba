"""The settings of a run: one TOML file, then EDGEFLOCK_SECTION__KEY in the environment, then --set.

Every key is declared here with its default; an error names the key, where it was set, its value and the
nearest valid key.
"""

import difflib
import socket
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgeflock.shared.errors import ConfigError

PREFIX = "EDGEFLOCK_"


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Run(Section):
    """The server and the run it hosts."""

    directory: str = Field("edgeflock-run", description="where the journal and the token are kept")
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8470
    token: str = Field("", description="shared secret; empty: the server makes one up")
    open: bool = Field(False, description="let devices in without a token")
    updates: Annotated[int, Field(ge=0)] = Field(0, description="stop after so many; 0: never")
    batch: Annotated[int, Field(ge=1)] = Field(10, description="samples per step")
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    evaluate_every: Annotated[float, Field(gt=0)] = Field(2.0, description="seconds")
    snapshot_every: Annotated[int, Field(ge=1)] = Field(1000, description="updates")
    keep_updates: bool = Field(True, description="keep update records that no restart needs")


class Model(Section):
    """What is trained."""

    module: str = Field("edgeflock.client.zoo:DigitsCNN", description="package.module:Name")
    loss: Literal["cross_entropy", "mse", "bce"] = "cross_entropy"
    data: str = Field("digits:", description="held-out data for evaluation; empty: none")
    pull: Literal["f32", "f16"] = Field("f32", description="coding of whole models")


class Coordination(Section):
    """How updates count."""

    rule: Literal["adacomp", "tau", "none"] = "adacomp"
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    window: Annotated[int, Field(ge=2, le=65536)] = Field(256, description="versions")


class Compression(Section):
    """What devices send."""

    select: Annotated[float, Field(gt=0, le=1)] = Field(0.01, description="fraction of each tensor")
    indices: Literal["golomb", "raw"] = "golomb"
    values: Literal["f32", "f16", "int8", "codebook4", "sign"] = "codebook4"


class Limits(Section):
    """What the server takes from one device, at most."""

    frame_bytes: Annotated[int, Field(ge=1024)] = 1 << 26
    expansion_bytes: Annotated[int, Field(ge=1024)] = 1 << 28
    devices: Annotated[int, Field(ge=1)] = 10_000
    hello_seconds: Annotated[float, Field(gt=0)] = 10.0


class Client(Section):
    """One device."""

    server: str = "http://127.0.0.1:8470"
    token: str = ""
    name: str = Field(default_factory=socket.gethostname)
    data: str = "digits:"
    backend: Literal["torch"] = "torch"
    model: str = Field("", description="the module to train, if the server may not choose it")
    threads: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0


class Config(Section):
    """Everything that can be set."""

    run: Run = Run()
    model: Model = Model()
    coordination: Coordination = Coordination()
    compression: Compression = Compression()
    limits: Limits = Limits()
    client: Client = Field(default_factory=lambda: Client())


@dataclass(frozen=True, slots=True)
class _Setting:
    value: object
    origin: str


_Settings = dict[tuple[str, str], _Setting]


def parse(
    toml: str = "",
    source: str = "edgeflock.toml",
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Config:
    """The configuration: `toml` (the text of `source`), then `environ`, then `overrides` (key=value).

    Raises ConfigError.
    """
    settings: _Settings = {}
    settings |= _from_toml(toml, source)
    settings |= _from_environment(environ or {})
    settings |= _from_overrides(overrides)
    sections: dict[str, dict[str, object]] = {}
    for (section, key), setting in settings.items():
        _check_known(section, key, setting)
        sections.setdefault(section, {})[key] = setting.value
    try:
        return Config.model_validate(sections)
    except ValidationError as invalid:
        raise ConfigError("\n".join(_explain(error, settings) for error in invalid.errors())) from invalid


def describe() -> str:
    """Every key with its default as a TOML file."""
    defaults = Config()
    lines = []
    for name, section in defaults:
        lines += [f"[{name}]  # {type(section).__doc__}"]
        for key, info in type(section).model_fields.items():
            if (name, key) == ("client", "name"):
                lines.append('# name = "pi-1"  # default: the host name')
                continue
            value = getattr(section, key)
            text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
            lines.append(f"{key} = {text}" + (f"  # {info.description}" if info.description else ""))
        lines.append("")
    return "\n".join(lines)


def _from_toml(text: str, source: str) -> _Settings:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from error
    settings: _Settings = {}
    for section, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"{source}: {section} = {table!r} stands outside a section; {_hint(section)}")
        for key, value in table.items():
            settings[section, key] = _Setting(value, f"{source} line {_line(text, section, key)}")
    return settings


def _line(text: str, section: str, key: str) -> int:
    """The line that sets section.key; the first of the file if it is set in an unusual way."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.split("]")[0].strip("[ ]")
        elif current == section and stripped.partition("=")[0].strip(" \"'") == key:
            return number
    return 1


def _from_environment(environ: Mapping[str, str]) -> _Settings:
    """EDGEFLOCK_RUN__SEED=1 sets run.seed. Names without a double underscore are not settings."""
    settings: _Settings = {}
    for name, value in environ.items():
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if name.startswith(PREFIX) and separator:
            settings[section, key] = _Setting(value, name)
    return settings


def _from_overrides(overrides: Iterable[str]) -> _Settings:
    settings: _Settings = {}
    for override in overrides:
        path, equals, value = override.partition("=")
        section, dot, key = path.strip().partition(".")
        if not (equals and dot):
            raise ConfigError(f"--set {override!r} must be section.key=value, e.g. run.updates=1000")
        settings[section, key] = _Setting(value.strip(), "--set")
    return settings


def _check_known(section: str, key: str, setting: _Setting) -> None:
    fields = _KEYS.get(section)
    if fields is None or key not in fields:
        raise ConfigError(
            f"{setting.origin}: unknown key {section}.{key} = {setting.value!r}; {_hint(f'{section}.{key}')}"
        )


def _hint(path: str) -> str:
    """What the unknown `path` was probably meant to be."""
    known = [f"{section}.{key}" for section, keys in _KEYS.items() for key in keys]
    section, _, key = path.rpartition(".")
    # A right key in a wrong section is a better guess than a similar spelling.
    same_key = [candidate for candidate in known if candidate.partition(".")[2] == (key or path)]
    near = same_key or difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"sections are {', '.join(_KEYS)}"


def _explain(error: Any, settings: _Settings) -> str:
    section, key = (str(part) for part in error["loc"][:2])
    setting = settings[section, key]
    message = error["msg"].replace("Input should be", "must be")
    hint = ""
    if error["type"] == "literal_error":
        options = [str(option) for option in _KEYS[section][key].annotation.__args__]
        near = difflib.get_close_matches(str(setting.value), options, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{setting.origin}: {section}.{key} = {setting.value!r}: {message}{hint}"


_KEYS: dict[str, dict[str, Any]] = {
    "run": Run.model_fields,
    "model": Model.model_fields,
    "coordination": Coordination.model_fields,
    "compression": Compression.model_fields,
    "limits": Limits.model_fields,
    "client": Client.model_fields,
}
