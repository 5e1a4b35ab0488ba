"""`python -m benchmarks.page`: what the page in the browser costs, at a real server, in a headless Chromium.

The server, in a process of its own, knows so many devices, and once a second every one of them has changed.
Measured: from the navigation to the first paint and to the first numbers on screen, of five visits; then, of
--seconds on each page, the share of a core that the page's thread takes and its longest task. Prints one JSON
object.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web

from benchmarks.hosting import hosted_run
from benchmarks.load import PAPER_CNN, process
from benchmarks.plain import EXACT
from edgeflock.papers.machine import machine
from edgeflock.server.app import create_app, listen
from edgeflock.server.http.keys import HOST
from edgeflock.server.journal import DeviceTotals
from edgeflock.server.ledger import claim_run
from edgeflock.shared.settings.config import parse
from tests.browser import Tab, browsing

VISITS, EVERY = 5, 1.0
PAGES = {"overview": "overview", "table by name": "fleet", "table by updates": "fleet"}

WATCH = """
    window.longest = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((task) => {
      window.longest = Math.max(window.longest, task.duration); })).observe({ type: "longtask" });
    const look = () => document.querySelector(".tile b")
      ? window.shown = performance.now() : requestAnimationFrame(look);
    requestAnimationFrame(look);
"""


def _serve(ready: Connection, devices: int, directory: str) -> None:
    async def main() -> None:
        config = parse(overrides=["server.open=true", "model.data=", *EXACT])
        theta = np.zeros(PAPER_CNN.size, np.float32)
        claim_of = claim_run(Path(directory), "directory", PAPER_CNN, theta, config)
        with claim_of as claim, hosted_run(claim, Path(directory)) as hosted:
            known = [DeviceTotals(n, f"pi-{n}", n, 655 * n, 9120 * n) for n in range(1, devices + 1)]
            app = create_app(config, replace(hosted, accounts=known))
            async with listen(app, "127.0.0.1", 0) as port:
                ready.send(port)
                await _changing(app)

    asyncio.run(main())


async def _changing(app: web.Application) -> None:
    """Every device, once a second, for ever."""
    hub, registry = app[HOST].hub, app[HOST].registry
    while True:
        for device in registry.devices.values():
            device.statistics.updates += 1
            hub.mark_changed(device)
        await asyncio.sleep(EVERY)


async def visited(tab: Tab, url: str) -> dict[str, float]:
    """Milliseconds until something was painted, and until there were numbers."""
    await tab.go("about:blank")
    await tab.go(url)
    shown = await tab.until("window.shown")
    first = await tab.run("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return {"first_paint_ms": first, "numbers_ms": shown}


async def watched(tab: Tab, page: str, seconds: float) -> dict[str, Any]:
    """What a page takes, that is looked at for a while."""
    await tab.run(f"location.hash = '#{PAGES[page]}'")
    if page == "table by updates":
        await tab.run(
            "[...document.querySelectorAll('.head button')].find((b) => b.innerText === 'Updates').click()"
        )
    await asyncio.sleep(2)
    await tab.run("window.longest = 0")
    before = await _metrics(tab)
    await asyncio.sleep(seconds)
    after = await _metrics(tab)
    return {
        "core_share": round(
            (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"]), 3
        ),
        "longest_task_ms": round(await tab.run("window.longest"), 1),
        "heap_mib": round(after["JSHeapUsedSize"] / 2**20, 1),
        "elements": int(after["Nodes"]),
    }


async def _metrics(tab: Tab) -> dict[str, float]:
    return {one["name"]: one["value"] for one in (await tab.call("Performance.getMetrics"))["metrics"]}


async def measured(devices: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, process(_serve, devices, folder) as (port, server):
        async with browsing(Path(folder) / "browser") as tab:
            await tab.looks(1360, 850)
            await tab.call("Performance.enable")
            await tab.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
            url = f"http://127.0.0.1:{port}/"
            visits = [await visited(tab, url) for _ in range(VISITS)]
            pages = {}
            began, used = time.monotonic(), sum(server.cpu_times()[:2])
            for page in PAGES:
                pages[page] = await watched(tab, page, seconds)
            share = (sum(server.cpu_times()[:2]) - used) / (time.monotonic() - began)
    medians = {key: round(statistics.median(one[key] for one in visits), 1) for key in visits[0]}
    return {"devices": devices, **medians, "pages": pages, "server_core_share": round(share, 3)}


async def main(seconds: float) -> dict[str, object]:
    return {"machine": machine(), "runs": [await measured(devices, seconds) for devices in (20, 200, 5000)]}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=15.0)
    print(json.dumps(asyncio.run(main(arguments.parse_args().seconds)), indent=2))
