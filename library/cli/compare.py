"""`edgeflock compare`: two runs side by side."""

from pathlib import Path
from typing import Annotated

import typer

from edgeflock.cli.options import Json, require


def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="A run's [run.directory].")],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Another run's.")],
    json: Json = False,
) -> None:
    """Compare two runs: settings that differ, accuracy, loss and bytes side by side.

    It reads the journals on this machine. Rows are at equal parts of each run; the last row has the last
    evaluations.
    """
    with require("server", "compare reads journals with"):
        from edgeflock.operations.compare import show_comparison
    show_comparison(first, second, as_json=json)
