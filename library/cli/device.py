"""`edgeflock device`: the devices that have joined a run."""

from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.groups import Group
from edgeflock.cli.options import (
    RUN,
    Directory,
    Json,
    date_of,
    labels_of,
    open_register,
    print_json,
)
from edgeflock.shared.identity import names
from edgeflock.shared.protocol.shown import labels_text

device = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="List, label, rotate, revoke and release devices, on the server's machine.",
)

Name = Annotated[str, typer.Argument(help="As `edgeflock device list` shows it.")]


@device.command("list")
def list_(directory: Directory = RUN, json: Json = False) -> None:
    """Show the devices that have joined. `edgeflock status` shows which are connected."""
    with open_register(directory) as (register, _):
        rows = sorted(register.devices.values(), key=lambda one: one.name)
        quarantines = {one.name: register.find_quarantine(one.name) for one in rows}
    if json:
        for one in rows:
            quarantine = quarantines[one.name]
            print_json({
                "name": one.name, "key": one.key.hex(), "joined": one.joined, "token": one.token.hex()[:12],
                "revoked": one.revoked, "rotates": one.rotate, "labels": dict(one.labels),
                "quarantined": None if quarantine is None else quarantine.until,
                "because": None if quarantine is None else quarantine.reason,
            })  # fmt: skip
        return
    for one in rows:
        state = "revoked" if one.revoked is not None else "to be rotated" if one.rotate else "joined"
        if one.revoked is None and (quarantine := quarantines[one.name]) is not None:
            state = f"in quarantine until {date_of(quarantine.until)}"
        name, key, labels = names.name_with_scripts(one.name), one.key.hex()[:12], labels_text(one.labels)
        print(f"{name}  {state}  {date_of(one.joined)}  key {key}  {labels}".rstrip())


@device.command()
def revoke(name: Name, directory: Directory = RUN) -> None:
    """Revoke a device's credential: its session ends within a second.

    With another token it may join again, with another key.
    """
    with open_register(directory) as (register, audit):
        register.revoke(name)
        audit(f"revoked {name!r}")
    print(f"{name} is revoked")


@device.command()
def release(name: Name, directory: Directory = RUN) -> None:
    """End a device's quarantine: it is admitted when it next connects, within five minutes."""
    with open_register(directory) as (register, audit):
        register.release(name)
        audit(f"released {name!r}")
    print(f"{name} is released")


@device.command()
def rotate(name: Name, directory: Directory = RUN) -> None:
    """Let a device make another key and get another credential when it next connects."""
    with open_register(directory) as (register, audit):
        register.rotate(name)
        audit(f"has {name!r} rotate its key")
    print(f"{name} gets another key and credential when it next connects")


@device.command()
def label(
    name: Name,
    labels: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="KEY= removes a label.")],
    directory: Annotated[Path, typer.Option("--directory", help="The run's [server.directory].")] = RUN,
) -> None:
    """Set labels of a device."""
    with open_register(directory) as (register, audit):
        register.label(name, labels_of(labels))
        audit(f"labelled {name!r} {' '.join(labels)}")
    print(f"{name} is labelled")
