"""preset = "NAME": settings that belong together, and what may override them."""

import pytest

from edgeflock.devices.emulation import config as fleet_config
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config, parse
from edgeflock.shared.settings.presets import PRESETS

RECORD = 'preset = "low-bandwidth"\n'


def chosen(config: Config, preset: str = "low-bandwidth") -> dict[str, object]:
    """The keys that the preset sets, as they came out."""
    settings = config.model_dump()
    paths = {path: path.partition(".") for path in PRESETS[preset]}
    return {path: settings[section][key] for path, (section, _, key) in paths.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_of_settings_that_hold(name: str) -> None:
    assert chosen(parse(overrides=[f"preset={name}"]), name) == PRESETS[name]


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
        ("preset = 'low-bandwidth' # the fewest bytes\n[local]\nbatch = 3\n", []),
        ("", ["preset=low-bandwidth"]),
        ("", [" preset = low-bandwidth "]),
        ('[compression]\nselect = 0.7\nvalues = "f16"\n', ["preset=low-bandwidth"]),
    ],
)
def test_a_preset_in_the_file_and_in_set(toml: str, overrides: list[str]) -> None:
    config = parse(toml, overrides=overrides)
    assert chosen(config) == PRESETS["low-bandwidth"]
    assert (config.local.optimizer, config.coordination.learning_rate) == ("sgd", 0.05)


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
        ("", {}, ["preset=low-bandwidth", "compression.select=0.4"], 0.4, 8.0),
        # --set is stronger than the environment, and a setting than a preset.
        ("", {"EDGEFLOCK_COMPRESSION__SELECT": "0.3"}, ["preset=low-bandwidth"], 0.0005, 8.0),
        ("", {}, ["compression.select=0.4", "preset=low-bandwidth"], 0.4, 8.0),
        ("", {"EDGEFLOCK_PRESET": "low-bandwidth"}, [], 0.0005, 8.0),
        ("", {"EDGEFLOCK_PRESET": "low-bandwidth"}, ["coordination.average=0"], 0.0005, 0.0),
    ],
)
def test_what_overrides_a_preset(
    toml: str, environ: dict[str, str], overrides: list[str], select: float, average: float
) -> None:
    config = parse(toml, environ=environ, overrides=overrides)
    assert (config.compression.select, config.coordination.average) == (select, average)
    assert config.compression.feedback == PRESETS["low-bandwidth"]["compression.feedback"]


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
        ('\n\npreset = "recrd"\n[local]\nbatch = 3\n', (), "fleet.toml line 3"),
        ("", ("preset=recrd",), "--set"),
    ],
)
def test_an_unknown_preset_is_named_with_the_known(
    toml: str, overrides: tuple[str, ...], origin: str
) -> None:
    message = error_of(toml, overrides)
    assert message == f"{origin}: preset = 'recrd' is no preset; known are {', '.join(PRESETS)}"


def test_no_name_at_all_is_no_preset() -> None:
    assert "preset = '' is no preset" in error_of(overrides=("preset=",))
    assert "--set 'preset' must be section.key=value" in error_of(overrides=("preset",))


def test_a_number_is_no_preset() -> None:
    assert "preset = 3 is no preset" in error_of("preset = 3\n")


def test_a_section_is_no_preset() -> None:
    assert "coordination = 'record' is outside a section" in error_of('coordination = "record"\n')
    assert "must be section.key=value" in error_of(overrides=("coordination=record",))


def test_a_wrong_value_of_a_preset_would_be_placed_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRESETS, "wrong", {"compression.select": 2.0})
    message = error_of('[local]\nbatch = 3\n[client]\nname = "a"\n', ("preset=wrong",))
    assert message.startswith("--set: preset = 'wrong': compression.select = 2.0: must be less than")
    message = error_of('# a\npreset = "wrong"\n')
    assert message.startswith("fleet.toml line 2: preset = 'wrong': compression.select = 2.0")


def test_a_fleet_file_knows_them_too() -> None:
    devices = "[end]\nupdates = 9\n[devices.all]\nstep_ms = 5\n"
    assert chosen(fleet_config.parse(RECORD + devices, "fleet.toml")) == PRESETS["low-bandwidth"]
    assert (
        chosen(fleet_config.parse(devices, "fleet.toml", ["preset=low-bandwidth"]))
        == PRESETS["low-bandwidth"]
    )
