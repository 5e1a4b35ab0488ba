"""`edgeflock token`: tokens with which machines join a run, and operators watch it or act on it."""

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
    seconds_of,
)
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import training_page
from edgeflock.shared.protocol.shown import labels_text

if TYPE_CHECKING:  # SQLite, which `edgeflock --help` need not load
    from edgeflock.server.identity import Role

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
    revoked.
    """
    if role not in _ROLES:
        raise ConfigError(f"--role {role!r} must be device, viewer, admin or gateway")
    if qr and role != "device":
        raise ConfigError(f"--qr is for devices in browsers, and --role is {role}")
    if qr:
        with require("qr", "--qr needs"):
            import segno
    seconds = seconds_of(expires or ("1d" if role == "device" else "never"))
    try:
        graph = bytes.fromhex(graph_digest or "")
    except ValueError:
        graph = b"?"
    if len(graph) not in (0, 32):
        raise ConfigError(f"--graph-digest {graph_digest!r} must be 64 hexadecimal digits")
    with open_register(directory) as (register, audit):
        created = register.create(
            cast("Role", role),
            reusable=reusable or role != "device",
            seconds=seconds,
            labels=labels_of(label),
            graph=graph,
        )
        id_, url = register.tokens[created.digest].id, register.url or "URL"
        audit(f"made the token {id_} for the role {role}")
    page = training_page(address or url, created.text) if role == "device" else ""
    if json:
        print_json({"token": created.text, "id": id_, "role": role, "url": register.url, "page": page})
    elif qr:
        segno.make(page, micro=False).terminal(compact=True)
        print(page)
    elif role == "device":
        print(f"edgeflock client join {url} {created.text}")
    else:
        print(created.text)


@token.command("list")
def list_(directory: Directory = RUN, json: Json = False) -> None:
    """Show the tokens, without their secrets."""
    with open_register(directory) as (register, _):
        rows = sorted(register.tokens.values(), key=lambda one: one.created)
    if json:
        for one in rows:
            print_json({
                "id": one.id, "role": one.role, "reusable": one.reusable, "made": one.created,
                "expires": one.expires, "labels": dict(one.labels), "used_by": one.used_by,
            })  # fmt: skip
        return
    for one in rows:
        until = "never expires" if one.expires is None else f"until {date_of(one.expires)}"
        usage = "for one device" if one.used_by is None else f"used by {one.used_by}"
        if one.reusable:
            usage = "reusable"
        print(f"{one.id}  {one.role:<6}  {until}  {usage}  {labels_text(one.labels)}".rstrip())


@token.command()
def revoke(
    id_: Annotated[str, typer.Argument(metavar="ID", help="As `edgeflock token list` shows it.")],
    directory: Directory = RUN,
) -> None:
    """Revoke a token. Devices that joined with it stay."""
    with open_register(directory) as (register, audit):
        register.delete(id_)
        audit(f"revoked the token {id_}")
    print(f"{id_} is revoked")
