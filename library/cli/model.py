"""`edgeflock model`, `predict` and `export`: a run's model as a file, what it predicts, and its graphs."""

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.cli.groups import Group
from edgeflock.cli.options import (
    Json,
    Set,
    Token,
    TokenFile,
    Url,
    add_to_path,
    connection_of,
    load_settings,
    print_json,
    require,
)
from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:
    from edgeflock.api.graphs import Graphs


model = typer.Typer(cls=Group, no_args_is_help=True, help="Fetch a run's model, to use it elsewhere.")


class ModelFormat(StrEnum):
    """Formats of a model's file."""

    safetensors = "safetensors"
    onnx = "onnx"
    peft = "peft"


@model.command()
def pull(
    url: Url = None,
    version: Annotated[
        str, typer.Option(help="last, best (of all evaluations), or a number, with the admin token.")
    ] = "last",
    format: Annotated[
        ModelFormat,
        typer.Option(help="safetensors: for torch; onnx: for any runtime; peft: adapters."),
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

    `edgeflock predict` takes each of the files, except adapters. Those of a run with model.lora are merged
    into the weights of the other formats; peft writes a folder that the package of that name loads.
    """
    server, secret = connection_of(url, token, token_file, set_)
    import asyncio

    from edgeflock.inference.fetching import fetch_model
    from edgeflock.shared.numbers import size

    done = asyncio.run(fetch_model(server, secret, version, format.value, out))
    if json:
        print_json({
            "path": str(done.path), "card": str(done.card), "version": done.version,
            "bytes": done.octets,
        })  # fmt: skip
        return
    print(f"{done.path}: version {done.version:,}, {size(done.octets)}; its card is {done.card}")


def predict(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A .safetensors or .onnx file of a run, or a device's settings with client.keep_model.",
        ),
    ],
    data: Annotated[str, typer.Option(help="What to predict, e.g. csv:new.csv or images:FOLDER.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PATH", help="Write to a file, not to the output.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of each class.")
    ] = False,
) -> None:
    """Predict new data with a trained model, as CSV.

    The data need no labels. Tables are read in the columns and units of the run, which the file knows; their
    columns are kept. A .safetensors file needs torch and the module's code, a .onnx file onnxruntime alone.
    """
    if model.suffix == ".toml":
        model = Path(_kept_model(model))
    add_to_path(Path.cwd())
    add_to_path(model.resolve().parent)
    from edgeflock.inference.predicting import opened, write
    from edgeflock.shared.artifacts import interpret
    from edgeflock.shared.data.unlabelled import read

    info, computed = opened(model)
    samples = read(data, info.data, info.input)
    predictions = interpret(computed(samples.x, samples.count), info)
    if out is None:
        write(sys.stdout, samples, predictions, every_class=probabilities)
        return
    try:
        with out.open("w", encoding="utf-8", newline="") as file:
            write(file, samples, predictions, every_class=probabilities)
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written: {error.strerror}") from error


def _kept_model(settings: Path) -> str:
    """Return client.keep_model of a device's settings. Raises ConfigError."""
    path = load_settings(settings, None).client.keep_model
    if not path:
        raise ConfigError(f"{settings} sets no client.keep_model; set it to a path such as model.onnx")
    return path


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="package.module:Name of the torch module.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for the graphs.")
    ] = None,
    data: Annotated[str, typer.Option(help="Data for the model, e.g. npz:my.npz.")] = "digits:",
    loss: Annotated[str, typer.Option(help="The loss, as in model.loss, e.g. mse.")] = "cross_entropy",
    digest: Annotated[
        bool, typer.Option("--digest", help="Print only the step's digest, for client.graph_digest.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a model's training step and evaluation as ONNX, checked against torch.

    Servers do it by themselves, for devices without torch. A device that is to train this step and no other
    has its digest in client.graph_digest.
    """
    if not digest and out is None:
        raise ConfigError("name the folder for the graphs with --out DIR, or set --digest")
    with require("server", "the export needs"), redirect_stdout(sys.stderr):  # the user's module may print
        from edgeflock.api.model import Model

        add_to_path(Path.cwd())

        graphs = Model(model, loss=loss).graphs(data)
    if digest:
        print(graphs.digest)
    elif out is not None:
        write_graphs(graphs, model, loss, out, as_json=json)


def write_graphs(graphs: "Graphs", model: str, loss: str, out: Path, *, as_json: bool) -> None:
    """Write the graphs to `out` and print their description. Raises ConfigError."""
    import json

    paths = graphs.save(out)
    contents = (graphs.step, graphs.evaluation)
    written = [
        {"path": str(path), "bytes": len(octets), "sha256": sha256(octets).hexdigest()}
        for path, octets in zip(paths, contents, strict=True)
    ]
    if as_json:
        print(json.dumps({"model": model, "loss": loss, "graphs": written}))
        return
    for entry in written:
        print(f"{entry['path']}  {entry['bytes']:,} bytes  sha256 {entry['sha256']}")
