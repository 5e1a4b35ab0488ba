"""`edgeflock export`: a model's ONNX graphs as files."""

import sys
from contextlib import redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.cli.options import Json, add_to_path, require
from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:
    from edgeflock.api.graphs import Graphs


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
