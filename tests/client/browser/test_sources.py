"""What visitors give the training page, in a real browser: files and motion become the samples of a step."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser import Tab, browsing, needs_chromium
from tests.hosting import hosting

pytestmark = needs_chromium

TABLE = {
    "columns": ["height", "colour"],
    "means": [2.0, 0.0],
    "spreads": [0.5, 1.0],
    "labels": ["cat", "dog"],
    "numbers": False,
    "target": [],
    "categories": [[], ["blue", "red"]],
}


@asynccontextmanager
async def offered(folder: Path, **terms: Any) -> AsyncIterator[Tab]:
    """A page with the sources of a run of these terms in its section; window.sources is what it has built."""
    known = {"input": None, "description": None, **terms}
    async with (
        hosting(folder / "run", "server.browsers=true") as hosted,
        browsing(folder / "browser") as tab,
    ):
        await tab.looks(390, 844)
        await tab.go(f"{hosted.url}/train")
        await tab.until("document.getElementById('state')?.innerText.includes('edgeflock browsers install')")
        await tab.run(
            "document.getElementById('data').hidden = false; window.changes = 0;"
            "import('./train/page/sources.js').then(({ build_sources }) => { window.sources = build_sources("
            f"document.getElementById('data'), {json.dumps(known)}, () => window.changes++) }})"
        )
        await tab.until("!!window.sources")
        yield tab
        assert await tab.run("document.documentElement.scrollWidth") <= 390
        await tab.run("window.sources.close()")
        assert [error for error in tab.errors if "404" not in error] == []


async def titles(tab: Tab) -> list[str]:
    found: list[str] = await tab.run(
        "[...document.querySelectorAll('.kinds button')].map((one) => one.innerText)"
    )
    return found


async def choose(tab: Tab, title: str) -> None:
    script = "[...document.querySelectorAll('#data button')].find((one) => one.innerText === %s).click()"
    await tab.run(script % json.dumps(title))


async def give(tab: Tab, files: str, field: str = "input[type=file]") -> None:
    """Choose files in the page: `files` is an expression for an array of them."""
    await tab.run(
        f"(async () => {{ const given = new DataTransfer(); for (const file of await ({files})) "
        f"given.items.add(file); const field = document.querySelector({json.dumps(field)});"
        "field.files = given.files; field.dispatchEvent(new Event('change')); })()"
    )


async def taken(tab: Tab, batch: int = 100) -> dict[str, Any] | None:
    """The samples that a step gets."""
    found: dict[str, Any] | None = await tab.run(
        f"window.sources.data({{ batch: {batch} }}).then((one) => one && "
        "{ ...one, x: [...one.x], y: [...one.y], classes: one.y instanceof Int32Array })"
    )
    return found


async def test_a_table_is_given_in_the_units_of_the_run(tmp_path: Path) -> None:
    async with offered(tmp_path, description=TABLE, input=[3]) as tab:
        assert await titles(tab) == ["A table (CSV)"]
        assert "height, colour" in await tab.run("document.getElementById('data').innerText")
        assert await taken(tab) is None
        await give(tab, "[new File(['colour,height,kind\\nred,3,dog\\nblue,,cat\\nred,2,'], 'a.csv')]")
        await tab.until(
            "document.getElementById('data').innerText.includes('2 rows; rows without a label, left out: 1')"
        )
        assert await tab.run("document.querySelector('#data select').value") == "kind", "not a run's column"
        samples = await taken(tab)
        assert samples is not None
        rows = {
            tuple(row): y
            for row, y in zip(np.reshape(samples["x"], (2, 3)).tolist(), samples["y"], strict=True)
        }
        assert rows == {(2, 0, 1): 1, (0, 1, 0): 0}
        assert (samples["classes"], samples["shape"]) == (True, [3])
        one = await taken(tab, batch=1)
        assert one is not None
        assert len(one["y"]) == 1
        await give(tab, "[new File(['height,kind\\n3,dog'], 'b.csv')]")
        await tab.until(
            "document.querySelector('#data .trouble')?.innerText.includes('no column \"colour\"')"
        )
        assert await taken(tab) is None


PICTURE = """Promise.all([['red', 'cat'], ['#0000ff', 'dog']].map(([colour, name]) => new Promise((done) => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 20, height: 10 });
  const pen = canvas.getContext('2d'); pen.fillStyle = colour; pen.fillRect(0, 0, 20, 10);
  canvas.toBlob((blob) => done(new File([blob], name + '.png', { type: 'image/png' })));
})))"""


@pytest.mark.parametrize("channels", [1, 3])
async def test_images_are_resized_and_have_the_class_that_is_chosen(channels: int, tmp_path: Path) -> None:
    animals = {**TABLE, "columns": [], "means": [], "spreads": [], "categories": []}
    async with offered(tmp_path, description=animals, input=[channels, 4, 5]) as tab:
        assert await titles(tab) == ["Images"]
        await choose(tab, "dog")
        await give(tab, PICTURE)
        await tab.until("document.getElementById('data').innerText.includes('2 images')")
        samples = await taken(tab)
        assert samples is not None
        assert samples["y"] == [1, 1]
        assert samples["shape"] == [channels, 4, 5]
        colours = {tuple(np.round(x[:, 2, 2], 3)) for x in np.reshape(samples["x"], (2, channels, 4, 5))}
        assert colours == ({(1, 0, 0), (0, 0, 1)} if channels == 3 else {(0.298,), (0.114,)})
        before = await tab.run("window.changes")
        await give(tab, "[new File(['no image'], 'c.png', { type: 'image/png' })]")
        await tab.until(
            "document.querySelector('#data .trouble')?.innerText.includes('c.png is no readable image')"
        )
        assert await tab.run("window.changes") == before


async def test_motion_is_recorded_in_windows(tmp_path: Path) -> None:
    gestures = {
        **TABLE,
        "columns": [],
        "means": [],
        "spreads": [],
        "categories": [],
        "labels": ["still", "walk"],
    }
    async with offered(tmp_path, description=gestures, input=[3, 4]) as tab:
        assert await titles(tab) == ["Motion"]
        move = (
            "for (let n = 0; n < 6; n++) dispatchEvent(Object.assign(new Event('devicemotion'),"
            "{ accelerationIncludingGravity: { x: 9.80665 * n, y: 0, z: -9.80665 } }))"
        )
        await tab.run(move)
        assert await taken(tab) is None, "nothing before it is asked to"
        await choose(tab, "walk")
        await choose(tab, "Record")
        await tab.until("document.querySelector('#data button[aria-pressed=true].main') !== null")
        await tab.run(move)
        await choose(tab, "Stop recording")
        await tab.run(move)
        samples = await taken(tab)
        assert samples is not None
        assert samples["y"] == [1, 1]
        windows = sorted(np.reshape(samples["x"], (2, 3, 4)).tolist())
        still = [[0] * 4, [-1] * 4]
        np.testing.assert_allclose(windows, [[[0, 1, 2, 3], *still], [[2, 3, 4, 5], *still]], atol=1e-6)


async def test_a_model_of_another_input_is_told_what_to_do(tmp_path: Path) -> None:
    async with offered(tmp_path, input=[2, 3, 4, 5]) as tab:
        assert await titles(tab) == []
        assert "[2, 3, 4, 5]. A page of your own" in await tab.run(
            "document.getElementById('data').innerText"
        )
        assert await taken(tab) is None
