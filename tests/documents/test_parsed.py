"""What README and docs tell people to type: the command's own parser takes every `edgeflock` line."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import typer

from docs.site import PAGES as PAGES_MADE
from edgeflock.cli.app import app
from edgeflock.devices.emulation.config import parse
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings import config

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
LINE = re.compile(r"^(?:\$ |[A-Z_]+=\S+ )*(?:\S*/)?edgeflock (.*)$")
FENCE = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?:^    \S.*\n)+", re.MULTILINE)


def lines(text: str) -> Iterator[str]:
    """Lines of shell: those of fenced and of indented blocks, with what a backslash continues."""
    for block in (*FENCE.findall(text), *INDENTED.findall(text)):
        yield from (line.strip() for line in block.replace("\\\n", " ").splitlines())


def words(line: str) -> Iterator[list[str]]:
    """The arguments of each `edgeflock` that the line runs."""
    for part in re.split(r"&&|;|\|(?=\s)", line):
        if found := LINE.match(part.strip()):
            text = re.sub(r"(?<!\S)\d?>>?\s*\S+|&$", "", found[1])
            yield shlex.split(text, comments=True)


def commands() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for line in lines(page.read_text("utf-8")):
            for arguments in words(line):
                yield str(page.relative_to(ROOT)), arguments


@cache
def program() -> click.Command:
    return typer.main.get_command(app)


def parsed(arguments: list[str]) -> None:
    """Raises click.ClickException if the command would."""
    command: click.Command = program()
    context = click.Context(command, info_name="edgeflock")
    rest = list(arguments)
    while isinstance(command, click.Group) and rest:
        command.parse_args(context, rest)
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None, "resolve_command raises where there is none"
        command, context = found, click.Context(found, parent=context, info_name=name)
    if command.no_args_is_help and not rest:
        return
    command.parse_args(context, rest)


@pytest.mark.parametrize(
    ("page", "arguments"),
    [pytest.param(*one, id=f"{one[0]}: {' '.join(one[1])}"[:120]) for one in commands()],
)
def test_a_command_in_a_document_is_one(page: str, arguments: list[str]) -> None:
    try:
        parsed(arguments)
    except click.exceptions.Exit:
        pass  # --help, --version
    except click.ClickException as error:
        pytest.fail(f"{page}: edgeflock {' '.join(arguments)}: {error.format_message()}")


def test_what_is_no_command_is_found() -> None:
    for wrong in (
        ["serve"],
        ["server", "--prot", "1"],
        ["rollback", "x"],
        ["client", "join"],
        ["top", "--at"],
    ):
        with pytest.raises(click.ClickException):
            parsed(wrong)
    assert list(words("cd x && .venv/bin/edgeflock token create --role viewer >viewer-token")) == [
        ["token", "create", "--role", "viewer"]
    ]
    assert len(list(commands())) > 60


@pytest.mark.parametrize("name", PAGES_MADE)
def test_the_reference_is_what_the_code_is(name: str) -> None:
    said = (ROOT / "docs/reference" / f"{name}.md").read_text("utf-8")
    assert said == PAGES_MADE[name](), "write it anew: python -m docs.site"


SETTINGS = re.compile(rf"^(?:preset = |\[(?:{'|'.join(config.Config.model_fields)}|fleet)\])", re.MULTILINE)


def settings() -> Iterator[tuple[str, str]]:
    """The settings of an Edgeflock that pages show, but for the reference, which is made."""
    for page in PAGES:
        text = page.read_text("utf-8")
        fenced = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        indented = re.findall(r"(?:^    \S.*\n|^\n(?=    \S))+", text, re.MULTILINE)
        for block in (*fenced, *(re.sub("^    ", "", one, flags=re.MULTILINE) for one in indented)):
            if SETTINGS.search(block) and page.parent.name != "reference":
                yield str(page.relative_to(ROOT)), block


@pytest.mark.parametrize(
    ("page", "toml"), [pytest.param(*one, id=f"{number}: {one[0]}") for number, one in enumerate(settings())]
)
def test_settings_in_a_document_are_valid(page: str, toml: str) -> None:
    try:
        (parse if "[fleet]" in toml else config.parse)(toml, page)
    except ConfigError as error:
        if "my_package:loss cannot be imported" not in str(error):
            pytest.fail(f"{error} in\n{toml}")


def test_a_tutorial_s_fleet_is_one() -> None:
    text = (ROOT / "docs/tutorials/pi-fleet.md").read_text("utf-8")
    (toml,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert parse(toml, "pis.toml").fleet.devices == 30
