"""Settings that name an entry of a table."""

from typing import Annotated

import pytest
from pydantic import ValidationError

from edgeflock.shared.codecs.sparse import CODINGS as INDEX_CODINGS
from edgeflock.shared.codecs.values import CODINGS as VALUE_CODINGS
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.model.losses import LOSSES
from edgeflock.shared.settings.choices import Tables, one_of, one_of_tables
from edgeflock.shared.settings.config import Config, parse
from edgeflock.shared.settings.settings import Section, parse_as

HULLS = {"wood": 1, "steel": 2, "glass": 3}


class Ship(Section):
    hull: Annotated[str, one_of(HULLS)] = "wood"
    rig: Annotated[str, one_of_tables("ship.rig")] = "sloop"
    flags: list[Annotated[str, one_of_tables("ship.flags")]] = []


class Fleet(Section):
    ship: Ship = Ship()


TABLES: Tables = {"ship.rig": {"sloop": None, "ketch": None}, "ship.flags": {"red": None}}


def read(toml: str, tables: Tables | None = None) -> Ship:
    return parse_as(Fleet, f"[ship]\n{toml}", "fleet.toml", tables=tables).ship


def complaint(toml: str, tables: Tables | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        read(toml, tables)
    return str(caught.value)


@pytest.mark.parametrize("hull", HULLS)
def test_every_name_in_the_table_is_a_choice(hull: str) -> None:
    assert read(f'hull = "{hull}"').hull == hull


@pytest.mark.parametrize("value", ['"stee"', '""', "2", "true", "['steel']", "{wood = 1}"])
def test_nothing_else_is(value: str) -> None:
    message = complaint(f"hull = {value}")
    assert message.startswith("fleet.toml line 2: ship.hull = ")
    assert "must be 'wood', 'steel' or 'glass'" in message


def test_a_near_name_is_proposed() -> None:
    assert complaint('hull = "stee"').endswith("; did you mean 'steel'?")


def test_an_entry_that_is_added_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HULLS, "carbon", 4)
    assert read('hull = "carbon"').hull == "carbon"
    assert "'glass' or 'carbon'" in complaint('hull = "paper"')


def test_a_table_of_one_end_holds_where_it_is_handed_in() -> None:
    assert read('rig = "ketch"', TABLES).rig == "ketch"
    assert complaint('rig = "junk"', TABLES).endswith("ship.rig = 'junk': must be 'sloop' or 'ketch'")
    assert read('flags = ["red", "red"]', TABLES).flags == ["red", "red"]
    assert complaint('flags = ["red", "bed"]', TABLES).endswith("must be 'red'; did you mean 'red'?")


def test_the_other_end_takes_any_text() -> None:
    assert read('rig = "junk"').rig == "junk"
    assert read('rig = "junk"', {}).rig == "junk"
    assert complaint("rig = 3").endswith("must be a valid string")


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("model.loss", list(LOSSES)),
        ("compression.indices", [name for name in INDEX_CODINGS if name != "grid"]),
        ("compression.values", [name for name in VALUE_CODINGS if name != "scale"]),
    ],
)
def test_the_choices_of_a_run_are_the_tables(key: str, names: list[str]) -> None:
    section, setting = key.split(".")
    for name in names:
        assert getattr(getattr(parse(overrides=[f"{key}={name}"]), section), setting) == name
    with pytest.raises(ConfigError, match=rf"{key} = 'ff': must be '{names[0]}'"):
        parse(overrides=[f"{key}=ff"])


def test_a_setting_made_in_python_is_checked_too() -> None:
    with pytest.raises(ValidationError, match="'golomb', 'raw'"):
        Config.model_validate({"compression": {"indices": "int8"}})
