"""The fleet file: what it says, what is refused before anything runs, and the shipped profiles."""

import tomllib
from fnmatch import fnmatch
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeflock.cli.fleet import run_fleet_file
from edgeflock.devices.emulation.config import (
    PROFILES,
    DeviceClass,
    FleetFile,
    headcount,
    load_profile,
    parse,
)
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.presets import PRESETS

REPOSITORY = Path(__file__).parents[3]

FILE = """\
[end]
updates = 5

[fleet]
devices = 4
seeds = [3, 5]

[devices.pi]
profile = "raspberry-pi-4"
rate = 2

[devices."pi zero"]
step_ms = 7.5
"""


def test_sections_and_classes() -> None:
    file = parse(FILE, "fleet.toml")
    assert file.end.updates == 5
    assert file.coordination == FleetFile().coordination
    assert (file.fleet.devices, file.fleet.seeds, file.fleet.data) == (4, (3, 5), "digits:")
    assert file.devices == file.classes
    assert file.classes == {
        "pi": DeviceClass(profile="raspberry-pi-4", rate="2"),
        "pi zero": DeviceClass(step_ms=7.5),
    }


def test_without_classes_the_devices_are_laptops() -> None:
    assert parse("[end]\nupdates = 1\n", "fleet.toml").classes == {"laptop": DeviceClass(profile="laptop")}


def test_set_reaches_into_classes() -> None:
    overrides = ["devices.pi.rate=3.5", "devices.pi zero.crash=0.25", "fleet.seconds=60", "end.updates=0"]
    file = parse(FILE, "fleet.toml", overrides)
    assert file.classes["pi"] == DeviceClass(profile="raspberry-pi-4", rate="3.5")
    assert file.classes["pi zero"] == DeviceClass(step_ms=7.5, crash=0.25)
    assert (file.fleet.seconds, file.end.updates) == (60, 0)


def test_the_compression_preset_works_as_for_the_server() -> None:
    file = parse('preset = "low-bandwidth"\n' + FILE, "fleet.toml")
    preset = PRESETS["low-bandwidth"]
    assert file.compression.select == preset["compression.select"] != FleetFile().compression.select
    assert file.compression.values == preset["compression.values"]


END = "[end]\nupdates = 5\n"
CLASS = END + "[devices.pi]\nstep_ms = 10\n"

REFUSED: dict[str, tuple[str, list[str]]] = {
    "unknown key in [end]": (
        "[end]\nupdate = 5\n",
        ["line 2", "unknown key end.update = 5", "mean end.updates?"],
    ),
    "unknown key in [model]": (
        END + "[model]\nmodul = 5\n",
        ["line 4", "model.modul = 5", "mean model.module?"],
    ),
    "unknown key in [coordination]": (
        END + "[coordination]\nrules = 'tau'\n",
        ["line 4", "unknown key coordination.rules = 'tau'", "mean coordination.rule?"],
    ),
    "unknown key in [compression]": (
        END + "[compression]\nselct = 0.1\n",
        ["line 4", "unknown key compression.selct = 0.1", "mean compression.select?"],
    ),
    "unknown key in [limits]": (
        END + "[limits]\nframe_byte = 5000\n",
        ["line 4", "unknown key limits.frame_byte = 5000", "mean limits.frame_bytes?"],
    ),
    "unknown key in [fleet]": (
        END + "[fleet]\n\nsecond = 5\n",
        ["line 5", "unknown key fleet.second = 5", "mean fleet.seconds?"],
    ),
    "unknown key of a class": (
        CLASS + "uplink_mpbs = 5\n",
        ["line 5", "unknown key devices.pi.uplink_mpbs = 5", "mean devices.pi.uplink_mbps?"],
    ),
    "a key of a class outside any": (END + "[devices]\nstep_ms = 5\n", ["line 4", "devices.step_ms = 5"]),
    "unknown section": (END + "[device.pi]\nstep_ms = 5\n", ["unknown key device.pi = {'step_ms': 5}"]),
    "a section within a class": (CLASS + "[devices.pi.link]\nrate = 5\n", ["devices.pi.link = {'rate': 5}"]),
    "a key outside a section": ("devices = 5\n" + END, ["devices = 5 is outside a section"]),
    "another type": (
        END + "[fleet]\ndevices = 2.5\n",
        ["line 4", "fleet.devices = 2.5", "must be a valid integer"],
    ),
    "crash = 1": (CLASS + "crash = 1\n", ["line 5", "devices.pi.crash = 1", "must be less than 1"]),
    "no devices": (END + "[fleet]\ndevices = 0\n", ["line 4", "fleet.devices = 0"]),
    "no seeds": (END + "[fleet]\nseeds = []\n", ["line 4", "fleet.seeds = []"]),
    "a seed that is none": (END + "[fleet]\nseeds = [1, -1]\n", ["line 4", "fleet.seeds = [1, -1]"]),
    "no evaluations": (END + "[fleet]\nevaluate_every = 0\n", ["line 4", "fleet.evaluate_every = 0"]),
    "endless": ("[local]\nbatch = 5\n", ["no end", "end.updates or fleet.seconds"]),
    "too few devices for a secure sum": (
        '[coordination]\nmode = "private"\ngroups = 3\naggregate = "median"\n'
        + END
        + "[fleet]\ndevices = 8\n",
        ["fleet.devices = 8", "no round begins with fewer than 9"],
    ),
    "an end that never comes": (END + "[fleet]\nseconds = inf\n", ["line 4", "fleet.seconds = inf"]),
    "leaves and never comes back": (
        CLASS + "session_s = 60\n",
        ["devices.pi", "session_s = 60.0 and away_s = 0.0"],
    ),
    "is away but never leaves": (
        CLASS + "away_s = 60\n",
        ["devices.pi", "session_s = 0.0 and away_s = 60.0"],
    ),
    "no speed": (
        CLASS + "[devices.jet]\nrate = 5\n",
        ["devices.jet needs step_ms, or a profile", *PROFILES],
    ),
    "unknown profile": (
        CLASS + "profile = 'raspberry-pi4'\n",
        ["line 5", "devices.pi.profile = 'raspberry-pi4'", "did you mean 'raspberry-pi-4'?"],
    ),
    "unknown timing": (
        CLASS + "timing = 'normal'\n",
        ["line 5", "devices.pi.timing = 'normal'", "'lognormal' or 'exponential'"],
    ),
    "samples that nobody shares": (
        CLASS + "[injection]\nalpha = 0.5\nbeta = 0.5\n",
        ["injection.alpha = 0.5", "devices.pi.shares = true"],
    ),
    "more classes than devices": (
        CLASS + "[devices.jet]\nstep_ms = 5\n[fleet]\ndevices = 1\n",
        ["fleet.devices = 1", "2 classes"],
    ),
    "not TOML": (END + "[fleet\n", ["not TOML", "line 3"]),
    "more devices than data": (
        END + "[fleet]\ndevices = 2000\n",
        ["fleet.devices = 2000", "1438", "digits:"],
    ),
    "more devices than samples": (
        END + "[fleet]\ndevices = 11\nsamples = 10\n",
        ["fleet.devices = 11", "only 10 samples"],
    ),
    "more samples than data": (
        END + "[fleet]\nsamples = 1439\n",
        ["fleet.samples = 1439", "'digits:'", "1438"],
    ),
    "no such data": (END + "[fleet]\ndata = 'npz:nowhere.npz'\n", ["npz:nowhere.npz", "no such file"]),
    "no such model": (
        END + "[model]\nmodule = 'edgeflock.client.zoo:Nothing'\n",
        ["model.module", "edgeflock.client.zoo:Nothing"],
    ),
    "model for other data": (
        END + "[model]\nmodule = 'edgeflock.client.zoo:PaperCNN'\n",
        ["model.module = 'edgeflock.client.zoo:PaperCNN'", "does not fit", "fleet.data = 'digits:'"],
    ),
    "a frame too small for the updates": (
        END + "[limits]\nframe_bytes = 2048\n[compression]\nselect = 1\nvalues = 'f32'\n",
        ["limits.frame_bytes = 2048", "38282", "raise it"],
    ),
    "updates that expand too far": (
        END + "[limits]\nexpansion_bytes = 2048\n",
        ["limits.expansion_bytes = 2048", "raise it"],
    ),
    "loss for other data": (
        END + "[model]\nloss = 'mse'\n",
        ["model.module", "does not fit", "outputs [8, 10] and targets [8]"],
    ),
}


def refusal_of(toml: str, directory: Path) -> str:
    """What `edgeflock fleet` says; nothing may have run."""
    path, out = directory / "fleet.toml", directory / "out"
    path.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        run_fleet_file(path, [], out, as_json=True)
    assert not out.exists()
    return str(caught.value)


@pytest.mark.parametrize(("toml", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_work_is_named(toml: str, named: list[str], tmp_path: Path) -> None:
    message = refusal_of(toml, tmp_path)
    for part in named:
        assert part in message


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "-inf", "'fast'"])
@pytest.mark.parametrize("key", ["step_ms", "share", "uplink_mbps", "downlink_mbps"])
def test_what_must_be_positive(key: str, value: str) -> None:
    toml = END + f"[devices.pi]\nprofile = 'laptop'\n{key} = {value}\n"
    with pytest.raises(
        ConfigError, match=rf"^fleet\.toml line 5: devices\.pi\.{key} = {value}(\.0)?: must be"
    ):
        parse(toml, "fleet.toml")


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
@pytest.mark.parametrize("key", ["spread", "latency_ms", "sample_ms", "crash", "session_s", "away_s"])
def test_what_may_be_zero_but_not_less(key: str, value: str) -> None:
    assert parse(CLASS + f"{key} = 0\n", "fleet.toml").classes
    with pytest.raises(ConfigError, match=rf"^fleet\.toml line 5: devices\.pi\.{key} = {value}: must be"):
        parse(CLASS + f"{key} = {value}\n", "fleet.toml")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml cannot be read: No such file .*; correct the path"):
        run_fleet_file(tmp_path / "missing.toml", [], tmp_path / "out", as_json=True)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"binary\.toml cannot be read: .*; save it as UTF-8"):
        run_fleet_file(tmp_path / "binary.toml", [], tmp_path / "out", as_json=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("before", [END, CLASS])
def test_a_class_without_any_key_is_refused_too(before: str) -> None:
    with pytest.raises(ConfigError, match=r"\[devices\.jet\] is empty"):
        parse(before + "[devices.jet]\n", "fleet.toml")


def test_a_seed_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fleet\.seeds = \[1, 2, 1\]"):
        parse(END + "[fleet]\nseeds = [1, 2, 1]\n", "fleet.toml")


# Dealing out the classes


def classes(shares: list[float]) -> dict[str, DeviceClass]:
    return {f"class {i}": DeviceClass(step_ms=1, share=share) for i, share in enumerate(shares)}


shares = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8)


@given(shares=shares, more=st.integers(0, 5000))
def test_every_class_has_a_device_and_together_they_are_all(shares: list[float], more: int) -> None:
    devices = len(shares) + more
    counts = headcount(classes(shares), devices)
    assert list(counts) == list(classes(shares))
    assert sum(counts.values()) == devices
    assert min(counts.values()) >= 1


@given(shares=st.lists(st.floats(1, 100), min_size=1, max_size=8), devices=st.integers(800, 5000))
def test_counts_are_the_shares_but_for_rounding(shares: list[float], devices: int) -> None:
    """Here every class is due at least one device."""
    for share, count in zip(shares, headcount(classes(shares), devices).values(), strict=True):
        assert abs(count - share / sum(shares) * devices) < 1


@pytest.mark.parametrize(
    ("shares", "devices", "counts"),
    [
        ([1], 7, [7]),
        ([1, 1, 1], 3, [1, 1, 1]),
        ([1, 1, 2], 8, [2, 2, 4]),
        ([3, 1], 10, [8, 2]),
        ([0.55, 0.25, 0.2], 10, [6, 2, 2]),
        ([1000, 1, 1], 5, [3, 1, 1]),
    ],
)
def test_counts_by_hand(shares: list[float], devices: int, counts: list[int]) -> None:
    """[3, 1] of 10 are 7.5 and 2.5: equal remainders go to the first."""
    assert list(headcount(classes(shares), devices).values()) == counts


@given(shares=shares, more=st.integers(0, 50))
@example(shares=[2.4, 2.1, 0.25, 0.25], more=1)
@example(shares=[9, 8, 0.1, 0.1], more=1)
def test_who_has_the_larger_share_has_no_fewer_devices(shares: list[float], more: int) -> None:
    counts = headcount(classes(shares), len(shares) + more).values()
    for (share, count), (other, fewer) in combinations(zip(shares, counts, strict=True), 2):
        assert (count - fewer) * (share - other) >= 0


# Profiles


@pytest.mark.parametrize("name", PROFILES)
def test_a_shipped_profile_is_whole_and_plausible(name: str) -> None:
    made = load_profile(name)
    assert 1 <= made.gflops <= 1000
    assert 0.1 <= made.overhead_ms <= 10
    assert 0 < made.spread < 1
    assert 1 <= made.uplink_mbps < made.downlink_mbps <= 1000
    assert 1 <= made.latency_ms <= 100


def test_the_profiles_are_those_that_lie_in_the_package() -> None:
    files = resources.files("edgeflock.devices").joinpath("profiles").iterdir()
    assert sorted(file.name for file in files if file.name.endswith(".toml")) == sorted(
        f"{name}.toml" for name in PROFILES
    )
    assert get_args(DeviceClass.model_fields["profile"].annotation) == ("", *PROFILES)


def test_the_wheel_takes_the_profiles_along() -> None:
    setuptools = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert setuptools["package-dir"]["edgeflock.devices"] == "devices"
    patterns = setuptools["package-data"]["edgeflock.devices"]
    for name in PROFILES:
        assert any(fnmatch(f"profiles/{name}.toml", pattern) for pattern in patterns)


@pytest.mark.parametrize("name", PROFILES)
def test_every_number_of_a_profile_has_its_source(name: str) -> None:
    """The comment above it says where it comes from."""
    lines = resources.files("edgeflock.devices").joinpath(f"profiles/{name}.toml").read_text("utf-8")
    before = ""
    for line in lines.splitlines():
        if "=" in line and not line.startswith("#"):
            assert before.startswith("#"), line
        before = line


@pytest.mark.parametrize(
    "rate", ["64", "normal(64,24)", "sine:12..108/60s", "square:100..0/20s", "steps:0:5,9:0"]
)
def test_a_rate_is_a_curve(rate: str) -> None:
    assert parse(CLASS + f"rate = '{rate}'\n", "fleet.toml").devices["pi"].rate == rate


@pytest.mark.parametrize("rate", ["-1", "nan", "fast", "uniform(38)", "poisson(3,1)", "sine:9..3/60s"])
def test_what_is_no_curve_is_told_with_its_key(rate: str) -> None:
    with pytest.raises(ConfigError, match=r"devices\.pi\.rate.*rate '"):
        parse(CLASS + f"rate = '{rate}'\n", "fleet.toml")


def test_the_bounds_of_a_batch_are_in_order() -> None:
    with pytest.raises(ConfigError, match="batch_min = 20 is above batch_max = 10"):
        parse(CLASS + "batch_min = 20\nbatch_max = 10\n", "fleet.toml")


def test_shards_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"scale.shards = 2: the model of an emulated fleet is in one process"
    ):
        parse(END + "[scale]\nshards = 2\n", "fleet.toml")
