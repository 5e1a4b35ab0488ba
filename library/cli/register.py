"""`edgeflock device` and `edgeflock token`: a run's devices, and tokens to join or watch it."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from edgeflock.cli.groups import Group
from edgeflock.cli.options import (
    RUN,
    Directory,
    Json,
    Labels,
    date_of,
    labels_of,
    open_register,
    print_json,
    require,
    run_folders,
    seconds_of,
)
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import names, training_page
from edgeflock.shared.protocol.shown import labels_text

if TYPE_CHECKING:
    from edgeflock.server.identity import Role


device = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="List, label, rotate, revoke and release devices, on the server's machine.",
)

Name = Annotated[str, typer.Argument(help="As `edgeflock device list` shows it.")]


@device.command("list")
def list_(directory: Directory = RUN, json: Json = False) -> None:
    """Show the devices that have joined. `edgeflock status` shows which are connected."""
    if (folders := run_folders(directory))[1:]:
        raise ConfigError(f"{directory} has several runs: name one, e.g. {folders[0]}")
    with open_register(folders[0]) as (register, _):
        rows = sorted(register.devices.values(), key=lambda one: one.name)
        quarantines = {one.name: register.find_quarantine(one.name) for one in rows}
    if json:
        print_json({"devices": [{
            "name": one.name, "key": one.key.hex(), "joined": one.joined, "token": one.token.hex()[:12],
            "revoked": one.revoked, "rotates": one.rotate, "labels": dict(one.labels),
            "quarantined": None if (quarantine := quarantines[one.name]) is None else quarantine.until,
            "because": None if quarantine is None else quarantine.reason,
        } for one in rows]})  # fmt: skip
        return
    if not rows:
        print(f"no device has joined yet; edgeflock token create {directory} prints the line for one")
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
        if is_held := register.release(name):
            audit(f"released {name!r}")
    print(f"{name} is released" if is_held else f"{name} is not in quarantine")


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
    labels: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="NAME= removes a label.")],
    directory: Annotated[Path, typer.Option("--directory", help="The run's [server.directory].")] = RUN,
) -> None:
    """Set labels of a device."""
    removed = [text for text in labels if text.endswith("=") and text != "="]
    given = labels_of([text for text in labels if text not in removed])
    with open_register(directory) as (register, audit):
        register.label(name, given | {text[:-1]: "" for text in removed})
        audit(f"labelled {name!r} {' '.join(labels)}")
    print(f"{name} is labelled")


_ROLES = ("device", "viewer", "admin", "gateway")

token = typer.Typer(
    cls=Group, no_args_is_help=True, help="Make, list and revoke tokens, on the server's machine."
)


@token.command()
def create(
    directory: Directory = RUN,
    role: Annotated[str, typer.Option(help="device, viewer, admin or gateway.")] = "device",
    reusable: Annotated[bool, typer.Option("--reusable", help="Valid for any number of devices.")] = False,
    expires: Annotated[
        str | None, typer.Option(help="Time until it expires, e.g. 90m, 24h or 7d; or never.")
    ] = None,
    label: Labels = None,
    graph_digest: Annotated[
        str | None, typer.Option(help="The only graph that its devices train (edgeflock export --digest).")
    ] = None,
    qr: Annotated[
        bool,
        typer.Option("--qr", help="Print a QR code that opens the server's training page (server.browsers)."),
    ] = False,
    address: Annotated[
        str | None,
        typer.Option("--url", help="The server's address for browsers, e.g. https://flock.example.org."),
    ] = None,
    json: Json = False,
) -> None:
    """Print a new token. It cannot be printed again, because the run stores only its SHA-256.

    By default, a token for devices is valid for a day and one device, and one for operators until it is
    revoked. In the folder of a server of several runs it prints a token of each run for devices.
    """
    if role not in _ROLES:
        raise ConfigError(f"--role {role!r} must be device, viewer, admin or gateway")
    if qr and role != "device":
        raise ConfigError(f"--qr is for devices in browsers, and --role is {role}")
    if qr:
        with require("qr", "--qr needs"):
            import segno
    seconds = seconds_of(expires or ("1d" if role == "device" else "never"))
    if not re.fullmatch("(?:[0-9a-fA-F]{64})?", graph_digest or ""):
        raise ConfigError(f"--graph-digest {graph_digest!r} must be 64 hexadecimal digits")
    for folder in run_folders(directory) if role == "device" else [directory]:
        with open_register(folder) as (register, audit):
            created = register.create(
                cast("Role", role), reusable=reusable or role != "device", seconds=seconds,
                labels=labels_of(label), graph=bytes.fromhex(graph_digest or ""),
            )  # fmt: skip
            id_, url = register.tokens[created.digest].id, register.url or "URL"
            audit(f"made the token {id_} for the role {role}")
        page = training_page(address or url, created.text) if role == "device" else ""
        if json:
            print_json({"token": created.text, "id": id_, "role": role, "url": register.url, "page": page})
        elif qr:
            from edgeflock.server.identity import own_fingerprint
            from edgeflock.server.web import hindrance

            segno.make(page, micro=False).terminal(compact=True)
            print(page)
            if why := hindrance(page, "" if address else own_fingerprint(folder, created.pin)):
                print(f"Note: {why}", file=sys.stderr)
        elif role == "device":
            print(f"edgeflock client join {url} {created.text}")
        else:
            print(created.text)


@token.command("list")
def list_tokens(directory: Directory = RUN, json: Json = False) -> None:
    """Show the tokens, without their secrets."""
    with open_register(directory) as (register, _):
        rows = sorted(register.tokens.values(), key=lambda one: one.created)
    if json:
        print_json({"tokens": [{
            "id": one.id, "role": one.role, "reusable": one.reusable, "made": one.created,
            "expires": one.expires, "labels": dict(one.labels), "used_by": one.used_by,
        } for one in rows]})  # fmt: skip
        return
    for one in rows:
        until = "never expires" if one.expires is None else f"until {date_of(one.expires)}"
        usage = "for one device" if one.used_by is None else f"used by {one.used_by}"
        if one.reusable:
            usage = "reusable"
        print(f"{one.id}  {one.role:<6}  {until}  {usage}  {labels_text(one.labels)}".rstrip())


@token.command("revoke")
def revoke_token(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `edgeflock token list` shows it.")],
    directory: Directory = RUN,
) -> None:
    """Revoke a token. Devices that joined with it stay."""
    with open_register(directory) as (register, audit):
        register.delete(id_)
        audit(f"revoked the token {id_}")
    print(f"{id_} is revoked")
