"""The settings of a run: one TOML file, then EDGEFLOCK_SECTION__KEY in the environment, then --set.

Every key is declared here with its default; an error names the key, where it was set, its value and the
nearest valid key.
"""

import difflib
import socket
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.presets import PRESETS

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
    local_steps: Annotated[int, Field(ge=1)] = Field(1, description="steps a device takes per update")
    local_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        0.05, description="learning rate of the steps between"
    )
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
    average: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="eta of the averaged model that is evaluated and served; 0: none"
    )
    base_batch: Annotated[int, Field(ge=0)] = Field(
        0, description="B: an update of b samples counts b / B times; 0: all alike"
    )


class Compression(Section):
    """What devices send."""

    select: Annotated[float, Field(gt=0, le=1)] = Field(0.01, description="fraction of the gradient")
    balance: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="tensors of n entries share the selection as n^balance"
    )
    feedback: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="part of what was not sent that is added to the next gradient"
    )
    indices: Literal["golomb", "raw", "grid"] = Field("golomb", description="grid: with signs")
    values: Literal["f32", "f16", "int8", "codebook4", "sign", "scale"] = Field(
        "codebook4", description='scale: without signs, for indices = "grid"', validate_default=True
    )

    @field_validator("values")
    @classmethod
    def _go_with_the_indices(cls, values: str, info: ValidationInfo) -> str:
        """The signs travel once: with the indices or with the values."""
        indices = info.data.get("indices")
        if indices is None or (indices == "grid") == (values == "scale"):
            return values
        raise ValueError(
            f'indices = "grid" and values = "scale" go together only, not {indices!r} and {values!r}; '
            'set both compression.indices = "grid" and compression.values = "scale", or neither'
        )


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
    backend: Literal["auto", "onnx", "torch"] = Field(
        "auto", description="auto: torch if it is installed and may build the model, else onnx"
    )
    model: str = Field("", description="the module to train with torch, if the server may not choose it")
    threads: Annotated[int, Field(ge=1)] = 1
    batch_min: Annotated[int, Field(ge=1)] = Field(8, description="of a stream: fewest samples of a batch")
    batch_max: Annotated[int, Field(ge=1)] = Field(1024, description="of a stream: most samples of a batch")
    buffer: str = Field(
        "", description="of a stream: a file for all that arrived; empty: memory, for the last second"
    )
    buffer_bytes: Annotated[int, Field(ge=1 << 16)] = Field(
        1 << 28, description="of a stream: the most that is buffered; the oldest is dropped"
    )
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
    return parse_as(Config, toml, source, environ, overrides)


Schema = TypeVar("Schema", bound=Section)


def parse_as(
    schema: type[Schema],
    toml: str,
    source: str,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Schema:
    """The same for any `schema`. A field of type dict[str, S] is a family of sections: [field.NAME]."""
    settings: _Settings = {}
    settings |= _from_toml(schema, toml, source)
    settings |= _from_environment(environ or {})
    settings |= _from_overrides(overrides)
    sections: dict[str, Any] = {}
    for (section, key), setting in settings.items():
        _check_known(schema, section, key, setting)
        table = sections
        for name in section.split(".", 1):  # the name of a family's member may have dots of its own
            table = table.setdefault(name, {})
        table[key] = setting.value
    try:
        return schema.model_validate(sections)
    except ValidationError as invalid:
        lines = (_explain(schema, error, settings) for error in invalid.errors())
        raise ConfigError("\n".join(lines)) from invalid


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


def _from_toml(schema: type[Section], text: str, source: str) -> _Settings:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        both = "[compression]" in text and any(line.startswith("compression") for line in text.splitlines())
        hint = (
            "; compression is a preset's name or a table, not both: use --set compression=NAME"
            if both
            else ""
        )
        raise ConfigError(f"{source}: not TOML: {error}{hint}") from error
    settings: _Settings = {}
    preset = tables.get("compression")
    if isinstance(preset, str):  # first, so that whatever the file says of its settings overrides it
        del tables["compression"]
        settings |= _from_preset(preset, f"{source} line {_line(text, '', 'compression')}")
    for section, table in tables.items():
        if not isinstance(table, dict):
            near = _hint(schema, section)
            raise ConfigError(f"{source}: {section} = {table!r} stands outside a section; {near}")
        for key, value in table.items():
            if isinstance(value, dict) and _is_family(schema, section):
                path, items = f"{section}.{key}", value
                if not value:
                    raise ConfigError(f"{source}: [{path}] is empty; leave it out, or say what it is")
            else:
                path, items = section, {key: value}
            for name, item in items.items():
                settings[path, name] = _Setting(item, f"{source} line {_line(text, path, name)}")
    return settings


def _from_preset(name: str, origin: str) -> _Settings:
    preset = PRESETS.get(name)
    if preset is None:
        raise ConfigError(f"{origin}: compression = {name!r} is no preset; known are {', '.join(PRESETS)}")
    return {
        (path.partition(".")[0], path.partition(".")[2]): _Setting(value, f"{origin}: compression = {name!r}")
        for path, value in preset.items()
    }


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
    if preset := environ.get(f"{PREFIX}COMPRESSION"):
        settings |= _from_preset(preset, f"{PREFIX}COMPRESSION")
    for name, value in environ.items():
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if name.startswith(PREFIX) and separator:
            settings[section, key] = _Setting(value, name)
    return settings


def _from_overrides(overrides: Iterable[str]) -> _Settings:
    settings: _Settings = {}
    # Presets first, so that --set in any order overrides them.
    for override in sorted(overrides, key=lambda one: one.partition("=")[0].strip() != "compression"):
        path, equals, value = override.partition("=")
        if path.strip() == "compression" and equals:
            settings |= _from_preset(value.strip(), "--set")
            continue
        section, dot, key = path.strip().rpartition(".")
        if not (equals and dot):
            raise ConfigError(f"--set {override!r} must be section.key=value, e.g. run.updates=1000")
        settings[section, key] = _Setting(value.strip(), "--set")
    return settings


def _check_known(schema: type[Section], section: str, key: str, setting: _Setting) -> None:
    if key not in _fields(schema, section):
        near = _hint(schema, f"{section}.{key}")
        raise ConfigError(f"{setting.origin}: unknown key {section}.{key} = {setting.value!r}; {near}")


def _fields(schema: type[Section], section: str) -> dict[str, Any]:
    """The keys of a section, or of a member of a family; none if there is no such section."""
    name, _, member = section.partition(".")
    if name not in schema.model_fields:
        return {}
    annotation: Any = schema.model_fields[name].annotation
    if _is_family(schema, name) != bool(member):
        return {}
    fields: dict[str, Any] = (get_args(annotation)[1] if member else annotation).model_fields
    return fields


def _is_family(schema: type[Section], section: str) -> bool:
    return section in schema.model_fields and get_origin(schema.model_fields[section].annotation) is dict


def _hint(schema: type[Section], path: str) -> str:
    """What the unknown `path` was probably meant to be."""
    section, _, key = path.rpartition(".")
    names = [*schema.model_fields, section]
    known = [f"{name}.{known}" for name in dict.fromkeys(names) for known in _fields(schema, name)]
    # A right key in a wrong section is a better guess than a similar spelling.
    same_key = [candidate for candidate in known if candidate.rpartition(".")[2] == (key or path)]
    near = same_key or difflib.get_close_matches(path, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return f"sections are {', '.join(schema.model_fields)}"


def _explain(schema: type[Section], error: Any, settings: _Settings) -> str:
    path = [str(part) for part in error["loc"]]
    message = error["msg"].replace("Input should be", "must be").removeprefix("Value error, ")
    for end in range(len(path), 1, -1):  # an error inside a list has positions after the key
        section, key = ".".join(path[: end - 1]), path[end - 1]
        if (section, key) in settings:
            break
    else:
        return f"{'.'.join(path) or 'settings'}: {message}"
    setting = settings[section, key]
    hint = ""
    if error["type"] == "literal_error":
        options = [str(option) for option in _fields(schema, section)[key].annotation.__args__]
        near = difflib.get_close_matches(str(setting.value), options, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{setting.origin}: {section}.{key} = {setting.value!r}: {message}{hint}"
