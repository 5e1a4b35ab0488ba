"""The edgeflock command. Each subcommand imports what it needs when it runs."""

import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from edgeflock.shared.choices import Tables
    from edgeflock.shared.config import Config

EXIT_FAILED, EXIT_USAGE, EXIT_REFUSED = 1, 2, 3
"""Exit codes: it failed; the settings cannot work; the server refused this device."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train one model on many small machines.",
    epilog="Exit codes: 0 done, 1 failed, 2 a setting is wrong, 3 the server refused this device, "
    "130 interrupted.",
)

ConfigFile = Annotated[
    Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Settings; see `edgeflock config`.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. run.port=9000."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def main() -> None:
    """Entry point: run the command, turn known errors into a line on stderr and an exit code."""
    from edgeflock.shared.errors import ConfigError, EdgeflockError, Refused

    try:
        app()
    except ConfigError as error:
        _fail(str(error), EXIT_USAGE)
    except Refused as error:
        _fail(f"{error.code}: {error}", EXIT_REFUSED)
    except EdgeflockError as error:
        _fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", 130)


def _fail(message: str, code: int) -> NoReturn:
    print(f"edgeflock: {message}", file=sys.stderr)
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("edgeflock"))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


@app.command()
def server(config: ConfigFile = None, set_: Set = None, json: Json = False, verbose: Verbose = False) -> None:
    """Host a model and take updates for it, until interrupted."""
    import asyncio

    results, sys.stdout = sys.stdout, sys.stderr  # a user's module may print; stdout is for results
    try:
        from edgeflock.server.app import serve
        from edgeflock.server.choices import CHOICES
        from edgeflock.server.hosting import open_run

        settings = _settings(config, set_, verbose, CHOICES)
        hosted = open_run(settings)
    except ImportError as error:
        _fail(f"the server needs {error.name}: pip install 'edgeflock[server]'", EXIT_USAGE)

    def ready(port: int) -> None:
        wildcard = settings.run.host in ("0.0.0.0", "::", "")
        url = f"http://{socket.gethostname() if wildcard else settings.run.host}:{port}"
        if json:
            import json as encoder

            line = encoder.dumps({"url": url, "run": hosted.run, "version": hosted.engine.version})
            print(line, file=results, flush=True)
        else:
            secret = f" --token {hosted.token}" if hosted.token else ""
            print(f"Run {hosted.run} at version {hosted.engine.version} on {url}", file=sys.stderr)
            print(f"On each device: edgeflock client --server {url}{secret} --data URI", file=sys.stderr)
            kept = Path(settings.run.directory) / "admin-token"
            admin = "run.admin_token" if settings.run.admin_token else f'"$(cat {kept})"'
            print(f"To watch and act: edgeflock top {url} --token {admin}", file=sys.stderr)

    try:
        asyncio.run(serve(settings, hosted, ready))
    except OSError as error:
        _fail(f"cannot listen on {settings.run.host}:{settings.run.port}: {error.strerror}", EXIT_FAILED)


@app.command()
def client(
    config: ConfigFile = None,
    server: Annotated[str | None, typer.Option(help="The server's URL [client.server].")] = None,
    token: Annotated[str | None, typer.Option(help="The run's secret [client.token].")] = None,
    name: Annotated[str | None, typer.Option(help="This device [client.name]; default: host name.")] = None,
    data: Annotated[str | None, typer.Option(help="Training data [client.data], e.g. npz:my.npz.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto, onnx or torch [client.backend].")] = None,
    model: Annotated[str | None, typer.Option(help="package.module:Name, for torch [client.model].")] = None,
    set_: Set = None,
    verbose: Verbose = False,
) -> None:
    """Train for a server on this machine's data, until its run is over."""
    import asyncio

    named = {
        "server": server,
        "token": token,
        "name": name,
        "data": data,
        "backend": backend,
        "model": model,
    }
    flags = [f"client.{key}={value}" for key, value in named.items() if value is not None]
    settings = _settings(config, [*(set_ or []), *flags], verbose)
    from edgeflock.client.run import run_client

    progress = asyncio.run(run_client(settings.client))
    print(f"{progress.updates} updates from {progress.samples} samples", file=sys.stderr)


@app.command()
def status(
    url: Annotated[str | None, typer.Argument(help="The server's URL [client.server].")] = None,
    token: Annotated[str | None, typer.Option(help="The run's secret [client.token].")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on as the run does.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between, with --watch.")] = 2.0,
    device: Annotated[str | None, typer.Option(help="One device, with its recent updates.")] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Show how a server's run is doing: everything that `edgeflock top` shows."""
    settings = _connection(url, token, set_)
    from edgeflock.devices import status_feed
    from edgeflock.devices.status import show_status

    if device is not None:
        status_feed.show_device(*settings, device, as_json=json)
    elif watch:
        status_feed.watch(*settings, interval, as_json=json)
    else:
        show_status(*settings, as_json=json)


@app.command()
def top(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="[URL]...", help="Servers, a tab each [client.server].")
    ] = None,
    token: Annotated[
        list[str] | None,
        typer.Option(help="The run's secret, or the admin's [client.token]; again for each server."),
    ] = None,
    interval: Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between frames.")] = 1.0,
    record: Annotated[Path | None, typer.Option(help="Keep the frames in this new file.")] = None,
    replay: Annotated[
        list[Path] | None, typer.Option(help="Show a recording, or a server's journal.sqlite, instead.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.01, help="Of a replay.")] = 1.0,
    at: Annotated[str, typer.Option(help="Where a replay begins: 12:30, or 40%.")] = "",
    web: Annotated[bool, typer.Option("--web", help="In a browser, on this machine only; no login.")] = False,
    port: Annotated[int, typer.Option(help="Of --web.")] = 8471,
    set_: Set = None,
) -> None:
    """Watch runs in the terminal; see docs/top.md."""
    import importlib.util

    if importlib.util.find_spec("textual") is None:
        _fail("the monitor needs textual: pip install 'edgeflock[tui]'", EXIT_USAGE)
    from edgeflock.devices.top_command import Plan, serve_web, show

    url, secret = _connection(None, None, set_)
    plan = Plan(urls or [url], token or [secret], interval, record, replay or [], speed, at)
    if web:
        if len(plan.tokens) > 1 or record is not None:
            _fail("--web takes one --token, and does not go with --record", EXIT_USAGE)
        given = [f"--replay={path.absolute()}" for path in plan.replay] or list(plan.urls)
        extra = [f"--interval={interval}", f"--speed={speed}", *([f"--at={at}"] if at else [])]
        serve_web([*given, *extra], plan.tokens[0], "localhost", port)
    else:
        show(plan)


@app.command()
def plot(
    source: Annotated[
        str | None, typer.Argument(help="A server's URL [client.server], a recording or a journal.")
    ] = None,
    token: Annotated[str | None, typer.Option(help="The run's secret [client.token].")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .png or .svg.")] = Path("edgeflock.png"),
    against: Annotated[str, typer.Option(help="time, updates or bytes.")] = "time",
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to watch a live server: its rates are not kept.")
    ] = 0.0,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Draw the figures of `edgeflock top`'s overview."""
    try:
        from edgeflock.devices.plot_command import plot as draw
    except ImportError as error:
        _fail(f"figures need {error.name}: pip install 'edgeflock[demo]'", EXIT_USAGE)

    url, secret = _connection(source, token, set_)
    draw(url, secret, against, out, seconds, as_json=json)


@app.command()
def quickstart(
    data: Annotated[str, typer.Option(help="digits: or npz:PATH with x_train ... y_test.")] = "digits:",
    model: Annotated[str, typer.Option(help="package.module:Name; default: one that fits the data.")] = "",
    rule: Annotated[str | None, typer.Option(help="adacomp, tau or none; default: adacomp.")] = None,
    select: Annotated[
        float | None, typer.Option(help="Fraction of each tensor's gradient to send; default: 0.01.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="f32, f16, int8, codebook4 or sign; default: codebook4.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="Client processes.")] = 4,
    backend: Annotated[
        str, typer.Option(help="What they train with: auto, onnx, torch or mixed (every other one onnx).")
    ] = "auto",
    updates: Annotated[int, typer.Option(min=0, help="Stop after so many; 0: as the data need.")] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Runs are kept under this folder.")] = Path(
        "edgeflock-quickstart"
    ),
    set_: Set = None,
    json: Json = False,
) -> None:
    """Train on this machine: a server and client processes on loopback, real sockets, real data."""
    from edgeflock.devices.quickstart import Plan, run_quickstart

    plan = Plan(data, model, rule, select, values, clients, backend, updates, seed, out, tuple(set_ or ()))
    run_quickstart(plan, as_json=json)


@app.command()
def fleet(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The fleet; see docs/fleet.md.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; default: edgeflock-fleet/FILE.")
    ] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Emulate a fleet of devices on this machine, in virtual time."""
    try:
        from edgeflock.devices.fleet_command import run_fleet_file
    except ImportError as error:
        _fail(f"fleets need {error.name}: pip install 'edgeflock[server,demo]'", EXIT_USAGE)

    run_fleet_file(file, set_ or [], out, as_json=json)


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help="adacomp or scadles.")],
    quick: Annotated[bool, typer.Option("--quick", help="Ten minutes instead of hours.")] = False,
    data: Annotated[
        str,
        typer.Option(
            help="adacomp: npz:PATH of MNIST, default $EDGEFLOCK_DATA/mnist.npz. scadles: the folder of "
            "mnist.npz and cifar10_jpgblob.npz, default $EDGEFLOCK_DATA."
        ),
    ] = "",
    updates: Annotated[
        int, typer.Option(min=0, help="Of each run, adacomp only; default: as the paper, or --quick.")
    ] = 0,
    seeds: Annotated[int, typer.Option(min=0, help="Of each setting; default: the full run's, or one.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results; what is in it is not run again.")] = Path(
        "edgeflock-reproduce"
    ),
    grid: Annotated[bool, typer.Option("--grid", help="Search the learning rates anew.")] = False,
    finished: Annotated[bool, typer.Option("--finished", help="Run nothing; report what has ended.")] = False,
    json: Json = False,
) -> None:
    """Reproduce a paper's tables and figures on emulated fleets."""
    try:
        from edgeflock.devices.reproduce_command import reproduce_paper
    except ImportError as error:
        _fail(f"fleets need {error.name}: pip install 'edgeflock[server,demo]'", EXIT_USAGE)

    reproduce_paper(
        paper,
        data,
        out,
        quick=quick,
        updates=updates,
        seeds=seeds,
        grid=grid,
        finished=finished,
        as_json=json,
    )


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="package.module:Name of the torch module.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the graphs.")],
    data: Annotated[str, typer.Option(help="Data that it is for, e.g. npz:my.npz.")] = "digits:",
    loss: Annotated[str, typer.Option(help="cross_entropy, mse or bce.")] = "cross_entropy",
    json: Json = False,
) -> None:
    """Write a model's training step and evaluation as ONNX, checked against torch.

    Servers do it by themselves, for devices without torch.
    """
    try:
        from edgeflock.devices.export_command import write_graphs
    except ImportError as error:
        _fail(f"the export needs {error.name}: pip install 'edgeflock[server]'", EXIT_USAGE)

    write_graphs(model, loss, data, out, as_json=json)


@app.command()
def config() -> None:
    """Print every setting with its default, as a TOML file."""
    from edgeflock.shared.config import describe

    print(describe())


def _connection(url: str | None, token: str | None, overrides: list[str] | None) -> tuple[str, str]:
    """(URL, token) of a server."""
    named = {"server": url, "token": token}
    flags = [f"client.{key}={value}" for key, value in named.items() if value is not None]
    client = _settings(None, [*(overrides or []), *flags], False).client
    return client.server, client.token


def _settings(
    path: Path | None, overrides: list[str] | None, verbose: bool, tables: "Tables | None" = None
) -> "Config":
    import os

    from edgeflock.shared import config
    from edgeflock.shared.errors import ConfigError

    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    text = ""
    if path is not None:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error
    return config.parse(text, str(path), os.environ, overrides or (), tables)
