"""`edgeflock model`: a run's model as a file to use elsewhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.groups import Group
from edgeflock.cli.options import Json, Set, Token, TokenFile, Url, connection_of, print_json

model = typer.Typer(cls=Group, no_args_is_help=True, help="Fetch a run's model, to use it elsewhere.")


class ModelFormat(StrEnum):
    """Formats of a model's file."""

    safetensors = "safetensors"
    onnx = "onnx"
    int8_onnx = "int8-onnx"


@model.command()
def pull(
    url: Url = None,
    version: Annotated[
        str, typer.Option(help="last, best (of all evaluations), or a number, with the admin token.")
    ] = "last",
    format: Annotated[
        ModelFormat,
        typer.Option(help="safetensors: for torch; onnx: for any runtime; int8-onnx: smaller."),
    ] = ModelFormat.safetensors,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="The file; else model.FORMAT here.")
    ] = None,
    token: Token = None,
    token_file: TokenFile = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Fetch a run's model as a file, with a model card in Markdown next to it.

    `edgeflock predict` takes each of the files. The accuracy of int8-onnx is measured by the server on its
    held-out data.
    """
    server, secret = connection_of(url, token, token_file, set_)
    import asyncio

    from edgeflock.inference.fetching import fetch_model
    from edgeflock.shared.numbers import size

    done = asyncio.run(fetch_model(server, secret, version, format.value, out))
    if json:
        print_json({
            "path": str(done.path), "card": str(done.card), "version": done.version,
            "bytes": done.octets, "scores": done.scores,
        })  # fmt: skip
        return
    print(f"{done.path}: version {done.version:,}, {size(done.octets)}; its card is {done.card}")
    for precision, scores in done.scores.items():
        for name, value in scores.items():
            print(f"{name} on held-out data as {precision}: {value:.4g}")
