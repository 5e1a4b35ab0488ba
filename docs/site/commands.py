"""Every command, of the program that parses them."""

from collections.abc import Iterator

import click
import typer

from docs.site.settings import escaped
from edgeflock.cli.app import app

_INTRODUCTION = """\
# Commands

`edgeflock COMMAND --help` says the same in a terminal. What a person reads goes to stderr, results to stdout;
with `--json` these are for machines. Exit codes: 0 done, 1 failed, 2 a setting is wrong, 3 the server refused
this device, 130 interrupted.
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield ("server", ...), ("client", ...), ("client join", ...) in the order of --help.

    Commands that only have others below them are left out.
    """
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group), "a program of several commands"
    yield from _below(root, "")


def _below(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        full = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            yield from _below(command, full)
        else:
            yield full.removesuffix(" train"), command  # which `edgeflock client` does unless it is told else


def page() -> str:
    """Markdown: a section a command, a table of its options."""
    lines = [_INTRODUCTION]
    for name, command in commands():
        with click.Context(command, info_name=f"edgeflock {name}") as context:
            usage = command.get_usage(context).removeprefix("Usage: ")
            lines += [
                f"## edgeflock {name}",
                "",
                "```text",
                usage,
                "```",
                "",
                (command.help or "").strip(),
                "",
            ]
            lines += _table(command, context)
    return "\n".join(lines)


def _table(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    rows = [(name, text.replace("  [", " [")) for name, text in rows if "--help" not in name]
    if rows:
        yield from ("| | |", "|---|---|")
        yield from (f"| `{escaped(name)}` | {escaped(text)} |" for name, text in rows)
        yield ""


def manual(name: str, command: click.Command) -> str:
    """One command as Markdown for a man page."""
    with click.Context(command, info_name=f"edgeflock {name}") as context:
        usage = command.get_usage(context).removeprefix("Usage: ")
        lines = [f"# edgeflock {name}", "", "## Synopsis", "", f"`{' '.join(usage.split())}`", ""]
        lines += ["## Description", "", (command.help or "").strip(), "", "## Options", ""]
        for one in command.get_params(context):
            if record := one.get_help_record(context):
                lines += [f"`{record[0]}`", f": {record[1] or 'See above.'}", ""]
    lines += ["## See also", "", "`edgeflock config` prints every setting with its default.", ""]
    return "\n".join(lines)
