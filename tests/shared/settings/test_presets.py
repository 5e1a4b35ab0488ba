"""compression = "NAME": settings that belong together, and what may override them."""

import pytest

from edgeflock.devices.emulation import config as fleet_config
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config, parse
from edgeflock.shared.settings.presets import PRESETS

RECORD = 'compression = "record"\n'


def chosen(config: Config, preset: str = "record") -> dict[str, object]:
    """The keys that the preset sets, as they came out."""
    settings = config.model_dump()
    paths = {path: path.partition(".") for path in PRESETS[preset]}
    return {path: settings[section][key] for path, (section, _, key) in paths.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_of_settings_that_hold(name: str) -> None:
    assert chosen(parse(overrides=[f"compression={name}"]), name) == PRESETS[name]


def test_the_record_is_sparse_damped_and_averaged() -> None:
    config = parse(RECORD)
    assert config.coordination.rule == "adacomp"
    assert config.coordination.average == 8
    compression = config.compression
    assert (compression.select, compression.balance, compression.feedback) == (0.0005, 0.5, 0.6)


@pytest.mark.parametrize(
    ("toml", "overrides"),
    [
        (RECORD, []),
        ("compression='record' # the fewest bytes\n[run]\nbatch = 3\n", []),
        ("", ["compression=record"]),
        ("", [" compression = record "]),
        ('[compression]\nselect = 0.7\nvalues = "f16"\n', ["compression=record"]),
    ],
)
def test_a_preset_in_the_file_and_in_set(toml: str, overrides: list[str]) -> None:
    config = parse(toml, overrides=overrides)
    assert chosen(config) == PRESETS["record"]
    assert (config.run.local_optimizer, config.coordination.learning_rate) == ("sgd", 0.05)


@pytest.mark.parametrize(
    ("toml", "environ", "overrides", "select", "average"),
    [
        (RECORD + "[coordination]\naverage = 2.0\n", {}, [], 0.0005, 2.0),
        (RECORD, {"EDGEFLOCK_COMPRESSION__SELECT": "0.3"}, [], 0.3, 8.0),
        (RECORD, {"EDGEFLOCK_COORDINATION__AVERAGE": "0"}, [], 0.0005, 0.0),
        (RECORD, {}, ["compression.select=0.4"], 0.4, 8.0),
        (
            RECORD,
            {"EDGEFLOCK_COMPRESSION__SELECT": "0.3"},
            ["compression.select=0.4", "coordination.average=1"],
            0.4,
            1.0,
        ),
        ("", {}, ["compression=record", "compression.select=0.4"], 0.4, 8.0),
        # --set is stronger than the environment, and a setting than a preset.
        ("", {"EDGEFLOCK_COMPRESSION__SELECT": "0.3"}, ["compression=record"], 0.0005, 8.0),
        ("", {}, ["compression.select=0.4", "compression=record"], 0.4, 8.0),
        ("", {"EDGEFLOCK_COMPRESSION": "record"}, [], 0.0005, 8.0),
        ("", {"EDGEFLOCK_COMPRESSION": "record"}, ["coordination.average=0"], 0.0005, 0.0),
    ],
)
def test_what_overrides_a_preset(
    toml: str, environ: dict[str, str], overrides: list[str], select: float, average: float
) -> None:
    config = parse(toml, environ=environ, overrides=overrides)
    assert (config.compression.select, config.coordination.average) == (select, average)
    assert config.compression.feedback == PRESETS["record"]["compression.feedback"]


def test_a_key_of_the_same_file_overrides_wherever_it_stands() -> None:
    config = parse(f'coordination.rule = "tau"\n{RECORD}')
    assert config.coordination.rule == "tau"


def test_a_table_is_a_table() -> None:
    config = parse('[compression]\nselect = 0.25\nfeedback = 0.5\nbalance = 0.0\nvalues = "int8"\n')
    compression = config.compression
    assert (compression.select, compression.feedback, compression.balance) == (0.25, 0.5, 0.0)
    assert compression.values == "int8"
    assert config.coordination == Config().coordination


def error_of(toml: str = "", overrides: tuple[str, ...] = (), environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(toml, "fleet.toml", environ, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("toml", "overrides", "origin"),
    [
        ('\n\ncompression = "recrd"\n[run]\nbatch = 3\n', (), "fleet.toml line 3"),
        ("", ("compression=recrd",), "--set"),
    ],
)
def test_an_unknown_preset_is_named_with_the_known(
    toml: str, overrides: tuple[str, ...], origin: str
) -> None:
    message = error_of(toml, overrides)
    assert message == f"{origin}: compression = 'recrd' is no preset; known are {', '.join(PRESETS)}"


def test_no_name_at_all_is_no_preset() -> None:
    assert "compression = '' is no preset" in error_of(overrides=("compression=",))
    assert "--set 'compression' must be section.key=value" in error_of(overrides=("compression",))


def test_a_number_is_no_preset() -> None:
    assert "compression = 3 is outside a section" in error_of("compression = 3\n")


def test_only_compression_has_presets() -> None:
    assert "coordination = 'record' is outside a section" in error_of('coordination = "record"\n')
    assert "must be section.key=value" in error_of(overrides=("coordination=record",))


def test_a_wrong_value_of_a_preset_would_be_placed_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "wrong", {"compression.select": 2.0})
    message = error_of('[run]\nbatch = 3\n[client]\nname = "a"\n', ("compression=wrong",))
    assert message.startswith("--set: compression = 'wrong': compression.select = 2.0: must be less than")
    message = error_of('# a\ncompression = "wrong"\n')
    assert message.startswith("fleet.toml line 2: compression = 'wrong': compression.select = 2.0")


def test_a_fleet_file_knows_them_too() -> None:
    devices = "[run]\nupdates = 9\n[devices.all]\nstep_ms = 5\n"
    assert chosen(fleet_config.parse(RECORD + devices, "fleet.toml")) == PRESETS["record"]
    assert chosen(fleet_config.parse(devices, "fleet.toml", ["compression=record"])) == PRESETS["record"]
