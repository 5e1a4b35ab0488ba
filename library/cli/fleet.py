"""`edgeflock fleet FILE.toml`: run the fleet of a file once for each seed, and report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import Json, Level, Set, add_to_path, log_to_stderr, read_text, require
from edgeflock.shared.extras import install_command


def fleet(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The fleet; see docs/fleet.md.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; default: edgeflock-fleet/FILE.")
    ] = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Emulate a fleet of devices on this machine, in virtual time."""
    run_fleet_file(file, set_ or [], out, as_json=json)


def run_fleet_file(path: Path, overrides: list[str], out: Path | None, *, as_json: bool) -> None:
    """Run `path` and leave JSON lines, figures and a report in `out`. Raises ConfigError."""
    import json

    with require("server", "fleets need"):
        from edgeflock.api.fleet import Fleet
        from edgeflock.devices.emulation.config import parse
        from edgeflock.results.report import draw_accuracy, outcome_summary, report

    add_to_path(path.resolve().parent)
    log_to_stderr(Level.warning)
    file = parse(read_text(path), str(path), overrides)
    directory = out or Path("edgeflock-fleet") / path.stem
    outcomes = Fleet.configured(file).sweep(directory)
    figures = "accuracy.png, accuracy.svg, "
    try:
        draw_accuracy(path.stem, file, outcomes, directory)
    except ImportError:
        figures = ""
        print(f"No figures, for which matplotlib is needed: {install_command('demo')}", file=sys.stderr)
    markdown = report(path.stem, file, outcomes, figures=bool(figures))
    (directory / "report.md").write_text(markdown)
    if as_json:
        print(
            json.dumps(
                {"directory": str(directory), "runs": [outcome_summary(outcome) for outcome in outcomes]}
            )
        )
    else:
        print(markdown)
        print(f"In {directory}: report.md, {figures}seed-*.jsonl", file=sys.stderr)
