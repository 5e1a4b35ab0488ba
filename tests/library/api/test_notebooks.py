"""The notebooks of examples/notebooks are run, each in a kernel of its own, with a quarter of the updates."""

from pathlib import Path

import jupytext
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[3] / "examples" / "notebooks").glob("*.py"))


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 3


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_figures(path: Path) -> None:
    notebook = jupytext.read(path)
    drawing = [cell for cell in notebook.cells if cell.cell_type == "code" and "ef.plot(" in cell.source]
    assert drawing
    for cell in notebook.cells:
        cell.source = cell.source.replace("updates=800", "updates=200")
    NotebookClient(notebook, timeout=500, kernel_name="python3").execute()
    for cell in drawing:
        (figure,) = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        assert len(figure["data"]["image/png"]) > 5_000
    assert not [output for cell in drawing for output in cell.outputs if output.get("name") == "stderr"]
