"""`edgeflock predict`: what a trained model says of new data."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import add_to_path, load_settings
from edgeflock.shared.errors import ConfigError


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
    from edgeflock.inference.opening import opened
    from edgeflock.inference.table import write
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
