"""Settings: which source wins, and what an error says."""

import re
import tomllib
from contextlib import suppress
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import ADAFACTOR_RATE, Config, describe, parse
from edgeflock.shared.settings.settings import Section, parse_as

TOML = """\
# a run
[end]
updates = 10
[local]
batch = 5

[coordination]
rule = "tau"
"""


def test_nothing_set_is_all_defaults() -> None:
    config = parse()
    assert config == Config()
    assert config.client.name == ""


def test_the_file_sets_what_it_names_and_nothing_else() -> None:
    config = parse(TOML)
    assert (config.end.updates, config.local.batch, config.coordination.rule) == (10, 5, "tau")
    assert config.server.port == Config().server.port
    assert config.compression == Config().compression


@pytest.mark.parametrize(
    ("toml", "environ", "overrides", "batch"),
    [
        ("", {}, [], 10),
        (TOML, {}, [], 5),
        (TOML, {"EDGEFLOCK_LOCAL__BATCH": "6"}, [], 6),
        (TOML, {"EDGEFLOCK_LOCAL__BATCH": "6"}, ["local.batch=7"], 7),
        (TOML, {"EDGEFLOCK_LOCAL__BATCH": "6"}, ["local.batch=7", "local.batch=8"], 8),
        ("", {"EDGEFLOCK_LOCAL__BATCH": "6"}, [], 6),
        (TOML, {}, ["local.batch=7"], 7),
    ],
)
def test_the_file_then_the_environment_then_set(
    toml: str, environ: dict[str, str], overrides: list[str], batch: int
) -> None:
    assert parse(toml, environ=environ, overrides=overrides).local.batch == batch


def test_text_becomes_what_the_key_is() -> None:
    config = parse(
        environ={"EDGEFLOCK_SERVER__OPEN": "true", "EDGEFLOCK_COMPRESSION__SELECT": "1e-3"},
        overrides=["journal.keep_updates=false", " server.port = 0 ", "client.token=a=b.c", "model.data="],
    )
    assert config.server.open is True
    assert config.journal.keep_updates is False
    assert config.server.port == 0
    assert config.client.token == "a=b.c"
    assert config.model.data == ""
    assert config.compression.select == 0.001


def test_a_shape_is_sizes() -> None:
    assert parse("[model]\ninput = [1, 28, 28]").model.input == [1, 28, 28]
    for text, sizes in {"16": [16], "1, 28,28": [1, 28, 28], "[3, 8]": [3, 8], "": []}.items():
        assert parse(overrides=[f"model.input={text}"]).model.input == sizes
    for text in ("28x28", "-1", "0", "1,1,1,1,1,1,1,1,1", "1.5"):
        with pytest.raises(ConfigError, match=f"model.input = '{text}': "):
            parse(overrides=[f"model.input={text}"])


def test_other_variables_are_not_settings() -> None:
    environ = {"EDGEFLOCK_DATA": "x", "RUN__BATCH": "99", "EDGEFLOCKRUN__BATCH": "99", "PATH": "/"}
    assert parse(environ=environ) == Config()


def test_described_defaults_are_the_defaults() -> None:
    described = describe()
    assert parse(described) == Config()
    assert not any(tomllib.loads(described).values()), "none of them is set"
    given = re.sub(r"^# (?=\w+ = )", "", described, flags=re.MULTILINE)
    assert parse(given) == Config()
    # Every key there is, none left out.
    assert {section: set(keys) for section, keys in tomllib.loads(given).items()} == {
        section: set(type(value).model_fields) for section, value in Config()
    }


@pytest.mark.parametrize(
    "setting",
    [
        'coordination.mode = "elastic"',
        "coordination.learning_rate = 0.1",
        'compression.values = "f32"',
        'model.module = "arrays:first.npz"',
    ],
)
def test_one_change_of_the_described_settings_is_that_change_alone(setting: str) -> None:
    """Defaults that depend on it follow it, as in a file without the others."""
    section, _, line = setting.partition(".")
    key = line.split()[0]
    changed = re.sub(
        rf"(\[{section}\].*?\n)# {key} = [^\n]*", rf"\1{line}", describe(), count=1, flags=re.DOTALL
    )
    assert parse(changed) == parse(f"[{section}]\n{line}\n")


@given(
    toml=st.text(max_size=60),
    environ=st.dictionaries(st.text("EDGFLOCKRUNS_", max_size=25), st.text(max_size=5), max_size=3),
    overrides=st.lists(st.text("run.=batch 1", max_size=15), max_size=3),
)
def test_whatever_is_written_it_is_settings_or_a_config_error(
    toml: str, environ: dict[str, str], overrides: list[str]
) -> None:
    with suppress(ConfigError):
        assert isinstance(parse(toml, environ=environ, overrides=overrides), Config)


def error_of(toml: str = "", environ: dict[str, str] | None = None, overrides: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(toml, "fleet.toml", environ, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("toml", "parts"),
    [
        (
            TOML + "window = 1\n",
            ["fleet.toml line 9", "coordination.window = 1", "greater than or equal to 2"],
        ),
        (
            TOML + "window = 65537\n",
            ["fleet.toml line 9", "coordination.window = 65537", "less than or equal to 65536"],
        ),
        (
            '[local]\n\n"batch"  = "many"\n',
            ["fleet.toml line 3", "local.batch = 'many'", "must be a valid integer"],
        ),
        ("[local]\nbatch = 0\n", ["fleet.toml line 2", "local.batch = 0"]),
        ("[server]\nport = 65536\n", ["fleet.toml line 2", "server.port = 65536"]),
        ("[compression]\nselect = -0.1\n", ["fleet.toml line 2", "compression.select = -0.1"]),
        ("[compression]\nselect = 1.1\n", ["compression.select = 1.1", "less than or equal to 1"]),
        ("[coordination]\nlearning_rate = inf\n", ["coordination.learning_rate = inf", "finite"]),
        ("[coordination]\nlearning_rate = nan\n", ["coordination.learning_rate = nan"]),
        ("[model]\nseed = 2147483648\n", ["model.seed = 2147483648", "less than 2147483648"]),
        (
            '[compression]\nvalues = "int"\n',
            ["compression.values = 'int'", "'codebook4'", "did you mean 'int8'?"],
        ),
        (
            "[run]\nupdate = 5\n",
            ["fleet.toml line 2", "unknown key run.update = 5", "did you mean end.updates?"],
        ),
        (
            "[run]\nlearning_rate = 5\n",
            ["unknown key run.learning_rate = 5", "did you mean coordination.learning_rate?"],
        ),
        ("[run]\nfoo = 5\n", ["fleet.toml line 2: unknown key run.foo = 5; sections are server, "]),
        ("[model]\n[run]\n", ["fleet.toml line 2: unknown section [run]; sections are server, "]),
        (
            'preset = "cohort"\n[coordination]\nmode = "tasks"\n',
            ["set coordination.mode = 'async' or 'cohort' or 'private', or leave the preset out"],
        ),
        ("[rum]\nseed = 5\n", ["line 2", "unknown key rum.seed = 5", "did you mean model.seed?"]),
        (
            "[zzzzzzzz]\nqqqqqqqq = 5\n",
            [
                "zzzzzzzz.qqqqqqqq = 5",
                "sections are server, journal, scale, model, local, coordination, optimizer, compression, "
                "defence, privacy, downlink, injection, evaluation, callbacks, end, limits, client",
            ],
        ),
        ("updates = 5\n", ["fleet.toml", "updates = 5", "outside a section", "did you mean end.updates?"]),
        (
            '[local]\nbatch = 5\npreset = "cohort"\n',
            ["line 3", "unknown key local.preset = 'cohort'; a preset stands before the first section"],
        ),
        ("[[run]]\nseed = 1\n", ["fleet.toml", "run = [{'seed': 1}]", "outside a section"]),
        ("[model]\nseed = \n", ["fleet.toml: not TOML", "line 2"]),
        (f"[model]\nseed = {'9' * 5000}\n", ["fleet.toml: not TOML", "digits"]),
        (f"x = {'[' * 20_000}", ["fleet.toml: not TOML", "recursion"]),
        (
            "[server]\nhost = {a = 1}\n",
            ["fleet.toml line 2", "server.host = {'a': 1}", "must be a valid string"],
        ),
        (
            '[model]\nlora = {r = 4, targets = "layers.6", rank = "x"}\n',
            [
                "line 2: model.lora = {'r': 4,",
                ": r is no key of it; keys are rank, alpha, targets, base",
                ': targets must be a valid list, e.g. ["layers.6"]',
                ": rank must be a valid integer",
            ],
        ),
    ],
)
def test_an_error_in_the_file(toml: str, parts: list[str]) -> None:
    message = error_of(toml)
    for part in parts:
        assert part in message


def test_an_error_in_the_environment() -> None:
    message = error_of(environ={"EDGEFLOCK_LOCAL__BATCH": "0"})
    assert message.startswith("EDGEFLOCK_LOCAL__BATCH: local.batch = '0': must be greater than or equal to 1")
    message = error_of(environ={"EDGEFLOCK_RUN__BATCHES": "1"})
    assert message == "EDGEFLOCK_RUN__BATCHES: unknown key run.batches = '1'; did you mean local.batch?"


def test_an_error_in_set() -> None:
    assert error_of(overrides=("local.batch=x",)).startswith(
        "--set: local.batch = 'x': must be a valid integer"
    )
    assert (
        error_of(overrides=("run.bach=1",)) == "--set: unknown key run.bach = '1'; did you mean local.batch?"
    )


@pytest.mark.parametrize("override", ["local.batch", "batch=1", "", "=", "."])
def test_set_must_name_a_key_and_a_value(override: str) -> None:
    assert f"--set {override!r} must be section.key=value" in error_of(overrides=(override,))


@pytest.mark.parametrize("key", ["end.updates", "limits.samples", "client_config.anything"])
def test_whole_numbers_are_as_large_as_journals_keep_and_records_send(key: str) -> None:
    parse(overrides=[f"{key}={(1 << 63) - 1}"])
    with pytest.raises(ConfigError, match=f"--set: {key} = '{1 << 63}': must be within 64 bits"):
        parse(overrides=[f"{key}={1 << 63}"])


def test_the_origin_is_that_of_the_source_that_won() -> None:
    message = error_of(TOML, {"EDGEFLOCK_LOCAL__BATCH": "6"}, ("local.batch=-1",))
    assert message.startswith("--set: local.batch = '-1'")
    assert error_of("[local]\nbatch = -1\n", {"EDGEFLOCK_LOCAL__BATCH": "-2"}).startswith(
        "EDGEFLOCK_LOCAL__BATCH"
    )


def test_every_wrong_value_is_named_at_once() -> None:
    message = error_of("[local]\nbatch = 0\n[server]\nport = -1\n[coordination]\nrule = 3\n")
    assert {line.split(":")[1].split(" =")[0].strip() for line in message.splitlines()} == {
        "local.batch",
        "server.port",
        "coordination.rule",
    }
    assert "line 2" in message
    assert "line 4" in message
    assert "line 6" in message


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        (("compression.values=sign", "compression.indices=grid"), "--set: compression.indices = 'grid': "),
        (("compression.values=scale", "compression.indices=raw"), "--set: compression.values = 'scale': "),
        (("preset=low-bandwidth", "compression.values=sign"), "--set: preset = 'low-bandwidth': "),
        (("preset=low-bandwidth", "compression.indices=golomb"), "--set: preset = 'low-bandwidth': "),
    ],
)
def test_signs_travel_once(settings: tuple[str, ...], at: str) -> None:
    message = error_of(overrides=settings)
    assert message.startswith(at)
    section = "downlink" if "downlink" in at else "compression"
    assert f"{section}.indices = " in message


@pytest.mark.parametrize(
    ("settings", "codings"),
    [
        ((), ("grid", "scale")),
        (("indices=grid",), ("grid", "scale")),
        (("values=scale",), ("grid", "scale")),
        (("values=scale", "indices=grid"), ("grid", "scale")),
        (("values=f32",), ("golomb", "f32")),
        (("values=f32", "indices=raw"), ("raw", "f32")),
        (("indices=golomb",), ("golomb", "codebook4")),
        (("indices=raw",), ("raw", "codebook4")),
        (("select=1",), ("golomb", "codebook4")),
        (("select=1.00",), ("golomb", "codebook4")),
        (("select=1", "indices=raw"), ("raw", "codebook4")),
        (("select=1", "values=f16"), ("golomb", "f16")),
        (("select=1", "values=scale"), ("grid", "scale")),
        (("select=1", "indices=grid"), ("grid", "scale")),
        (("select=0.999",), ("grid", "scale")),
        (("selection=significance",), ("golomb", "codebook4")),
        (("selection=significance", "values=scale"), ("grid", "scale")),
    ],
)
def test_one_coding_brings_another_that_goes_with_it(
    settings: tuple[str, ...], codings: tuple[str, str]
) -> None:
    compression = parse(overrides=[f"compression.{setting}" for setting in settings]).compression
    assert (compression.indices, compression.values) == codings


@pytest.mark.parametrize("other", ["select=0.1", "select=1", "threshold=0.3"])
def test_significance_goes_without_what_is_for_the_largest(other: str) -> None:
    message = error_of(overrides=("compression.selection=significance", f"compression.{other}"))
    key, _, value = other.partition("=")
    assert message.startswith(
        f"--set: compression.{key} = '{value}': it applies to a selection of the largest"
    )
    assert "set compression.selection = 'largest', or leave" in message


def test_elastic_averaging_brings_its_rule_and_the_exact_downlink() -> None:
    config = parse(overrides=("coordination.mode=elastic",))
    assert (config.coordination.rule, config.downlink.mode) == ("elastic", "exact")
    assert (config.coordination.moving_rate, config.coordination.chunk) == (0.1, 100_000)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("coordination.moving_rate=0",), "--set: coordination.moving_rate = '0': must be greater than 0"),
        (("coordination.moving_rate=1",), "--set: coordination.moving_rate = '1': must be less than 1"),
        (("local.steps=0",), "--set: local.steps = '0': must be greater than or equal to 1"),
        (("coordination.chunk=-1",), "--set: coordination.chunk = '-1': must be greater than or equal to 0"),
        (
            ("coordination.rule=tau",),
            "--set: coordination.mode = 'elastic': it has its own rule",
        ),
        (("coordination.base_batch=8",), "--set: coordination.base_batch = '8': it weighs updates"),
        (("downlink.mode=lossy",), "--set: downlink.mode = 'lossy': it sends no parts"),
        (("compression.threshold=0.3",), "--set: compression.threshold = '0.3': it applies to gradients"),
        (("local.momentum=1",), "--set: local.momentum = '1': must be less than 1"),
        (
            ("local.optimizer=adam",),
            "--set: local.optimizer = 'adam': it applies to a device's own steps",
        ),
        (("local.proximal=0.1",), "--set: local.proximal = '0.1': it limits"),
    ],
)
def test_what_elastic_averaging_cannot_have(settings: tuple[str, ...], said: str) -> None:
    message = error_of(overrides=("coordination.mode=elastic", *settings))
    assert message.startswith(said)


@pytest.mark.parametrize("setting", ["momentum=0.9", "optimizer=adam", "proximal=0.1"])
def test_what_is_of_a_device_s_own_steps_needs_such(setting: str) -> None:
    message = error_of(overrides=(f"local.{setting}",))
    assert f"local.{setting.split('=')[0]} = " in message
    assert "a device's own steps" in message
    assert "set local.steps" in message
    assert parse(overrides=[f"local.{setting}", "local.steps=2"])


def test_adam_has_its_own_momentum() -> None:
    settings = ("local.steps=2", "local.optimizer=adam", "local.momentum=0.9")
    assert "set local.optimizer = 'sgd', or leave local.momentum out" in error_of(overrides=settings)


def test_the_rule_elastic_is_of_elastic_averaging_only() -> None:
    assert "it is the rule of elastic averaging; set coordination.mode = 'elastic'" in error_of(
        overrides=("coordination.mode=rounds", "coordination.rule=elastic")
    )


def test_rounds_have_no_gate() -> None:
    message = error_of(overrides=("coordination.mode=rounds", "coordination.gate=asp"))
    assert message.startswith("--set: coordination.gate = 'asp': it limits how far devices are ahead")


@pytest.mark.parametrize("value", ["-0.1", "nan", "1001"])
def test_a_significance_is_a_part_of_a_parameter(value: str) -> None:
    assert error_of(overrides=(f"compression.significance={value}",)).startswith(
        f"--set: compression.significance = '{value}': "
    )


@pytest.mark.parametrize("select", ["1", "1.0"])
def test_whole_gradients_of_a_file_are_more_than_signs(select: str) -> None:
    compression = parse(f"[compression]\nselect = {select}\n").compression
    assert (compression.indices, compression.values) == ("golomb", "codebook4")


def test_nothing_else_follows_from_a_wrong_select() -> None:
    assert error_of(overrides=("compression.select=all",)).startswith("--set: compression.select = 'all': ")


def test_a_wrong_index_coding_is_the_only_error() -> None:
    message = error_of(overrides=("compression.indices=grit", "compression.values=scale"))
    assert "did you mean 'grid'?" in message
    assert len(message.splitlines()) == 1


def test_a_key_set_in_an_unusual_way_is_placed_at_the_top() -> None:
    assert error_of("# first\nlocal.batch = 0\n").startswith("fleet.toml line 1: local.batch = 0")


def test_settings_cannot_change_afterwards() -> None:
    config = parse()
    with pytest.raises(ValueError, match="frozen"):
        config.local.batch = 3  # type: ignore[misc]


# Families of sections


class Wing(Section):
    span: float = Field(1.0, gt=0)
    shape: Literal["round", "straight"] = "round"


class Body(Section):
    length: int = 2


class Bird(Section):
    body: Body = Body()
    wings: dict[str, Wing] = {}


WINGS = """\
[wings.left]
span = 3

[body]
length = 7

[wings."far right"]
shape = "straight"
span = 4
"""


def bird_error(toml: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_as(Bird, toml, "bird.toml", None, overrides)
    return str(caught.value)


def test_a_family_of_sections() -> None:
    bird = parse_as(Bird, WINGS, "bird.toml")
    assert bird.body.length == 7
    assert bird.wings == {"left": Wing(span=3), "far right": Wing(span=4, shape="straight")}
    assert parse_as(Bird, "", "bird.toml") == Bird()


def test_set_changes_one_member_and_begins_another() -> None:
    bird = parse_as(Bird, WINGS, "bird.toml", None, ["wings.left.span=0.5", "wings.third.shape=straight"])
    assert bird.wings["left"] == Wing(span=0.5)
    assert bird.wings["far right"].span == 4
    assert bird.wings["third"] == Wing(shape="straight")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        (
            "[wings.left]\nspan = 1\n[wings.right]\nspam = 0\n",
            "bird.toml line 4: unknown key wings.right.spam = 0; did you mean wings.right.span?",
        ),
        (
            "[wings.left]\nspan = 1\n[wings.right]\nspan = 0\n",
            "bird.toml line 4: wings.right.span = 0: must be greater than 0",
        ),
        (
            "[wings.left]\nshape = 'strait'\n",
            "bird.toml line 2: wings.left.shape = 'strait': must be 'round' or 'straight'; "
            "did you mean 'straight'?",
        ),
        ("[wings]\nspan = 1\n", "bird.toml line 2: unknown key wings.span = 1; "),
        ("[body]\nspan = 1\n", "bird.toml line 2: unknown key body.span = 1; "),
        ("[body.left]\nlength = 1\n", "bird.toml line 1: unknown key body.left = {'length': 1}; "),
        ("[wings.left]\n", "bird.toml: [wings.left] is empty"),
        ("wings = 3\n", "bird.toml line 1: wings = 3 is outside a section; "),
    ],
)
def test_an_error_in_a_family_names_the_member(toml: str, message: str) -> None:
    assert bird_error(toml).startswith(message)


def test_an_error_in_set_names_the_member() -> None:
    assert bird_error(WINGS, "wings.left.span=-1").startswith(
        "--set: wings.left.span = '-1': must be greater"
    )
    message = bird_error(WINGS, "wings.left.spam=1")
    assert message == "--set: unknown key wings.left.spam = '1'; did you mean wings.left.span?"


def test_devices_go_by_adafactor_at_its_own_rate_unless_a_rate_is_given() -> None:
    config = Config()
    assert (config.local.optimizer, config.coordination.learning_rate) == ("adafactor", ADAFACTOR_RATE)
    tuned = parse('[model]\nlora = {targets = ["head"]}')
    assert (tuned.coordination.learning_rate, tuned.local.rate) == (0.03, 0.03)
    assert parse("", overrides=['model.lora={"targets": ["head"]}']).local.rate == 0.03
    assert config.local.rate == ADAFACTOR_RATE
    assert parse(describe()) == config
    given = parse(overrides=["coordination.learning_rate=0.1"])
    assert (given.local.optimizer, given.coordination.learning_rate) == ("sgd", 0.1)
    asked = parse(overrides=["coordination.learning_rate=0.02", "local.optimizer=adafactor"])
    assert (asked.coordination.learning_rate, asked.local.rate) == (0.02, 0.02)


@pytest.mark.parametrize(
    ("overrides", "rate"),
    [
        (["coordination.cohort=3"], 0.0149),
        (["coordination.cohort=1"], 0.0149),
        (["coordination.cohort=10"], 0.01),
        (["coordination.cohort=200"], 0.01),
        (["coordination.cohort=3.0"], 0.0149),
        (["coordination.cohort=3", 'model.lora={"targets": ["head"]}'], 0.03),
        (["coordination.cohort=3", "coordination.mode=cohort", "local.optimizer=adafactor"], 0.01),
        (["coordination.cohort=3", "local.optimizer=sgd"], 0.05),
        (["coordination.cohort=3", "local.optimizer=adafactor", "coordination.learning_rate=0.01"], 0.01),
    ],
)
def test_the_rate_is_higher_if_few_devices_train_at_a_time(overrides: list[str], rate: float) -> None:
    assert parse(overrides=overrides).coordination.learning_rate == rate


@pytest.mark.parametrize(
    "override",
    [
        "coordination.mode=rounds",
        "coordination.mode=cohort",
        "coordination.mode=tasks",
        "coordination.mode=elastic",
        "coordination.mode=buffer",
        "optimizer.kind=adam",
        "compression.selection=significance",
        "preset=low-bandwidth",
        "preset=cohort",
        "model.module=arrays:model.npz",
    ],
)
def test_what_goes_by_gradients_has_sgd(override: str) -> None:
    config = parse(overrides=[override])
    assert config.local.optimizer == "sgd"
    assert config.coordination.learning_rate in (0.05, 1.0)


def test_adafactor_does_not_go_with_momentum() -> None:
    with pytest.raises(ConfigError, match="leave local.momentum out"):
        parse(overrides=["local.steps=4", "local.optimizer=adafactor", "local.momentum=0.9"])


def test_adafactor_goes_with_elastic_averaging_at_its_own_rate() -> None:
    config = parse(overrides=["coordination.mode=elastic", "local.optimizer=adafactor"])
    assert config.local.rate == ADAFACTOR_RATE


@pytest.mark.parametrize("half", ["alpha", "beta"])
def test_half_of_an_injection_injects_nothing(half: str) -> None:
    other = {"alpha": "beta", "beta": "alpha"}[half]
    assert f"set injection.{other}, or leave" in error_of(overrides=(f"injection.{half}=0.5",))
