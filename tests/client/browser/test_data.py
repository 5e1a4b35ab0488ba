"""Data that a page gives: tables are read as Python reads them, and drawings scaled as data sets are."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.shared.data.datasets import open_stored, read
from edgeflock.shared.data.fitting import describe
from edgeflock.shared.model.description import Description
from tests.client.browser.node import MODULES, NODE

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

TABLE = """import {parseTable, readTable} from "%s";
import {readFileSync} from "node:fs";
const {path, ...options} = JSON.parse(readFileSync(0));
try {
  const {x, y, ...rest} = readTable(parseTable(readFileSync(path, "utf8")), options);
  console.log(JSON.stringify({x: [...x], y: [...y], classes: y instanceof Int32Array, ...rest}));
} catch (error) { console.log(JSON.stringify({error: error.message})); }
""" % (MODULES / "data" / "table.js")  # fmt: skip

DRAWING = """import {imageShape, scaled} from "%s";
import {readFileSync} from "node:fs";
const {ink, n, input} = JSON.parse(readFileSync(0));
const shape = imageShape(input);
console.log(JSON.stringify({shape, x: shape && [...(scaled(Float32Array.from(ink), n, shape) ?? [])]}));
""" % (MODULES / "data" / "drawing.js")  # fmt: skip


def node(script: str, reported: dict[str, Any]) -> dict[str, Any]:
    """What a script prints that is told this."""
    assert NODE is not None
    command = [NODE, "--input-type=module", "--eval", script]
    done = subprocess.run(command, input=json.dumps(reported), capture_output=True, text=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def in_page(path: Path, description: Description | None, **options: Any) -> dict[str, Any]:
    names = None if description is None else dict(zip(Description._fields, description, strict=True))
    return node(TABLE, {"path": str(path), "label": "kind", "description": names, **options})


FLOWERS = """\ufeffwidth,height, colour ,kind
1.5,2,red,b
2.5,,blue,a
3,4e0,"red",a

,5,green,b
7,-1.25,"bl""ue",b
8,9,red,
8,9,red,n/a
"""


@pytest.mark.parametrize("sep", [",", ";", "\t"])
def test_a_table_is_read_as_in_python(sep: str, tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text(FLOWERS.replace(",", sep))
    options = {"\t": "&sep=tab", ";": "&sep=;"}.get(sep, "")
    uri = f"csv:{tmp_path / 'run.csv'}?label=kind{options}"
    description = describe(read(uri, "train"))
    assert description.categories
    expected = open_stored(uri, "train", description).load()
    (tmp_path / "own.csv").write_text(FLOWERS.replace(",", sep).replace("\n", "\r\n"))
    reported = in_page(tmp_path / "own.csv", description, input=[description.inputs])
    np.testing.assert_allclose(np.reshape(reported["x"], (-1, description.inputs)), expected.x, rtol=1e-6)
    assert reported["y"] == expected.y.tolist()
    assert reported["classes"]
    assert (reported["unlabelled"], reported["incomplete"], reported["shape"]) == (2, 2, [description.inputs])


def test_numbers_to_predict_are_scaled(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x;kind\n1,5;100,25\n2,5;300,5\n4;250\n")
    uri = f"csv:{path}?label=kind&sep=;&decimal=comma"
    description = describe(read(uri, "train"), targets=True)
    assert description.target
    expected = open_stored(uri, "train", description).load()
    reported = in_page(path, description)
    np.testing.assert_allclose(reported["y"], expected.y, rtol=1e-6)
    np.testing.assert_allclose(reported["x"], expected.x.ravel(), rtol=1e-6)
    assert not reported["classes"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the file is empty"),
        ("width,kind\n", "no rows but the one"),
        ("width,kind\n1,0,2\n", "line 2 has 3 cells"),
        ("width,width,kind\n1,1,0\n", "two columns"),
        ("width,sort\n1,0\n", 'no column "kind"'),
        ("height,kind\n1,0\n", 'no column "width"'),
        ("width,kind\n1,0\nwide,0\n", 'line 3: width is "wide"'),
        ("width,kind\ninf,0\n", "not a number"),
        ("width,kind\n0x10,0\n", "not a number"),
        ("width,kind\n1,-1\n", "the label is"),
        ("width,kind\n1,1.5\n", "the label is"),
        ("width,kind\n1,\n", "is empty"),
    ],
)
def test_a_table_that_does_not_fit_is_told_by_its_line(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    reported = in_page(tmp_path / "a.csv", Description(("width",), (0.0,), (1.0,)))
    assert reason in reported["error"]


def test_a_table_of_another_width_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,kind\n1,2,0\n")
    assert "takes samples of [3]" in in_page(tmp_path / "a.csv", None, input=[3])["error"]
    assert in_page(tmp_path / "a.csv", None, input=[2])["x"] == [1, 2]
    assert "a is empty" in in_page(_write(tmp_path, "a,kind\n,0\n"), None)["error"]


def _write(folder: Path, text: str) -> Path:
    (folder / "b.csv").write_text(text)
    return folder / "b.csv"


def test_small_drawings_are_counts_of_ink_as_digits_are() -> None:
    """Of a bitmap of 32 x 32, 1 to 16 of each block of 4 x 4, whatever the size and place of the drawing."""
    bitmap = np.zeros((32, 32), np.float32)
    bitmap[0:32, 6:17] = bitmap[28:32, 0:32] = 1
    expected = bitmap.reshape(8, 4, 8, 4).sum((1, 3)) / 16
    for scale, place in ((1, 0), (3, 11), (6, 40)):
        n = 280
        ink = np.zeros((n, n), np.float32)
        size = 32 * scale
        ink[place : place + size, place : place + size] = np.kron(bitmap, np.ones((scale, scale)))
        reported = node(DRAWING, {"ink": ink.ravel().tolist(), "n": n, "input": [1, 8, 8]})
        np.testing.assert_allclose(np.reshape(reported["x"], (8, 8)), expected, atol=1e-6)


def test_large_drawings_are_centred_as_mnist_is() -> None:
    ink = np.zeros((140, 140), np.float32)
    ink[5:105, 60:80] = 1  # 100 pixels high: 5 of them are one of the image
    reported = node(DRAWING, {"ink": ink.ravel().tolist(), "n": 140, "input": [784]})
    image = np.reshape(reported["x"], (28, 28))
    assert reported["shape"] == [1, 28, 28]
    expected = np.zeros((28, 28))
    expected[4:24, 12:16] = 1
    np.testing.assert_allclose(image, expected, atol=1e-6)
    colour = node(DRAWING, {"ink": ink.ravel().tolist(), "n": 140, "input": [3, 28, 28]})
    np.testing.assert_allclose(np.reshape(colour["x"], (3, 28, 28)), [expected] * 3, atol=1e-6)


@pytest.mark.parametrize("input", [[10], [1, 8, 9], [2, 8, 8], [4, 4], [1, 1, 28, 28], [63]])
def test_what_is_no_image_cannot_be_drawn(input: list[int]) -> None:
    assert node(DRAWING, {"ink": [0] * 16, "n": 4, "input": input})["shape"] is None
