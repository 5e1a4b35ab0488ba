"""`edgeflock export`: a model's ONNX graphs as files."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from edgeflock.devices.commands.options import Json, needing
from edgeflock.shared.errors import ConfigError


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="package.module:Name of the torch module.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the graphs.")],
    data: Annotated[str, typer.Option(help="Data that it is for, e.g. npz:my.npz.")] = "digits:",
    loss: Annotated[str, typer.Option(help="cross_entropy, mse or bce.")] = "cross_entropy",
    json: Json = False,
) -> None:
    """Write a model's training step and evaluation as ONNX, checked against torch.

    Servers do it by themselves, for devices without torch.
    """
    write_graphs(model, loss, data, out, as_json=json)


def write_graphs(model: str, loss: str, data: str, out: Path, *, as_json: bool) -> None:
    """Write step.onnx and evaluation.onnx into `out` and print what they are. Raises ConfigError."""
    import hashlib
    import json

    from edgeflock.shared.data import datasets

    with needing("server", "the export needs"):
        from edgeflock.server.training_graph.export import export_model

    samples = datasets.load(data, "test")
    with redirect_stdout(sys.stderr):  # the user's module may print
        graphs = export_model(model, loss, samples.x[:8], samples.y[:8])
    written = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, graph in (("step", graphs.step), ("evaluation", graphs.evaluation)):
            path = out / f"{name}.onnx"
            path.write_bytes(graph)
            written.append(
                {"path": str(path), "bytes": len(graph), "sha256": hashlib.sha256(graph).hexdigest()}
            )
    except OSError as error:
        raise ConfigError(f"--out {str(out)!r}: cannot be written: {error}") from error
    if as_json:
        print(json.dumps({"model": model, "loss": loss, "graphs": written}))
    else:
        for entry in written:
            print(f"{entry['path']}  {entry['bytes']:,} bytes  sha256 {entry['sha256']}")
