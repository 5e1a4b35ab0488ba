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
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Folder for the graphs.")
    ] = None,
    data: Annotated[str, typer.Option(help="Data that it is for, e.g. npz:my.npz.")] = "digits:",
    loss: Annotated[str, typer.Option(help="As in model.loss, e.g. mse.")] = "cross_entropy",
    digest: Annotated[
        bool, typer.Option("--digest", help="Print only the step's digest, for client.graph_digest.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a model's training step and evaluation as ONNX, checked against torch.

    Servers do it by themselves, for devices without torch. A device that is to train this step and no other
    has its digest in client.graph_digest.
    """
    if digest:
        print_digest(model, loss, data)
    elif out is None:
        raise ConfigError("--out names the folder for the graphs; or ask for --digest")
    else:
        write_graphs(model, loss, data, out, as_json=json)


def print_digest(model: str, loss: str, data: str) -> None:
    """Print what a device calls the training step by. Raises ConfigError."""
    step, _ = _exported(model, loss, data)
    print(_digest(step))


def write_graphs(model: str, loss: str, data: str, out: Path, *, as_json: bool) -> None:
    """Write step.onnx and evaluation.onnx into `out` and print what they are. Raises ConfigError."""
    import json

    written = []
    graphs = _exported(model, loss, data)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, graph in zip(("step", "evaluation"), graphs, strict=True):
            path = out / f"{name}.onnx"
            path.write_bytes(graph)
            written.append({"path": str(path), "bytes": len(graph), "sha256": _digest(graph)})
    except OSError as error:
        raise ConfigError(f"--out {str(out)!r}: cannot be written: {error}") from error
    if as_json:
        print(json.dumps({"model": model, "loss": loss, "graphs": written}))
    else:
        for entry in written:
            print(f"{entry['path']}  {entry['bytes']:,} bytes  sha256 {entry['sha256']}")


def _exported(model: str, loss: str, data: str) -> tuple[bytes, bytes]:
    """(step, evaluation)."""
    from edgeflock.shared.data import datasets
    from edgeflock.shared.model.fields import rows

    with needing("server", "the export needs"):
        from edgeflock.server.training_graph.export import export_model

    samples = datasets.load(data, "test")
    with redirect_stdout(sys.stderr):  # the user's module may print
        graphs = export_model(model, loss, rows(samples.x, slice(8)), samples.y[:8])
    return graphs.step, graphs.evaluation


def _digest(graph: bytes) -> str:
    import hashlib

    return hashlib.sha256(graph).hexdigest()
