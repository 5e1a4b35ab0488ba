"""Help that a terminal of 80 columns shows whole."""

import click
import pytest
import typer
import typer.core

from docs.site.commands import commands
from edgeflock.cli.app import app

WIDTH = 80

ROOT = typer.main.get_command(app)
assert isinstance(ROOT, click.Group)
NAMES = sorted({*(name for name, _ in commands()), "", *ROOT.commands})


@pytest.mark.parametrize("name", NAMES)
def test_help_is_whole(name: str) -> None:
    context = click.Context(ROOT, info_name="edgeflock", terminal_width=WIDTH)
    command: click.Command = ROOT
    for part in name.split():
        assert isinstance(command, click.Group)
        command = command.commands[part]
        context = click.Context(command, parent=context, info_name=part)
    text = command.get_help(context)
    assert "\\[" not in text, "brackets are not for rich"
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert not [line for line in text.splitlines() if line.endswith(("...", "\u2026")) and "[" not in line]
    assert text.count("rguments:\n") <= 1
    for argument in command.params:
        if isinstance(argument, typer.core.TyperArgument):
            assert argument.help, "each argument says what it is"
            assert argument.help in " ".join(text.split())


def test_help_of_client_names_all_that_a_client_does() -> None:
    assert isinstance(ROOT, click.Group)
    client = ROOT.commands["client"]
    text = client.get_help(click.Context(client, info_name="client"))
    assert "Usage: client [OPTIONS] [CONFIG.toml]" in text
    assert "--backend" in text
    assert "\n  train  Train for" in text
    assert "\n  join   Join a run" in text
