"""`edgeflock quickstart`: a whole fleet of processes on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import Json, Set


def quickstart(
    data: Annotated[str, typer.Option(help="digits: or npz:PATH with x_train ... y_test.")] = "digits:",
    model: Annotated[str, typer.Option(help="package.module:Name; default: one that fits the data.")] = "",
    rule: Annotated[str | None, typer.Option(help="adacomp, tau or none; default: adacomp.")] = None,
    select: Annotated[
        float | None,
        typer.Option(help="Fraction of a gradient to send; default: of P entries the root of P."),
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="f32, f16, int8, codebook4, sign or scale; default: scale (signs).")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, help="Client processes.")] = 4,
    backend: Annotated[
        str, typer.Option(help="What they train with: auto, onnx, torch or mixed (every other one onnx).")
    ] = "auto",
    updates: Annotated[int, typer.Option(min=0, help="Updates of the run; 0: as the data need.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the runs.")] = Path("edgeflock-quickstart"),
    set_: Set = None,
    json: Json = False,
) -> None:
    """Train on this machine: a server and client processes on loopback, real sockets, real data."""
    from edgeflock.quickstart import QuickstartPlan, run_quickstart

    plan = QuickstartPlan(
        data, model, rule, select, values, clients, backend, updates, seed, out, tuple(set_ or ())
    )
    run_quickstart(plan, as_json=json)
