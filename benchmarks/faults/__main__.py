"""python -m benchmarks.faults SCENARIO [KEY=NUMBER ...]: do it, print what it came to as JSON.

python -m benchmarks.faults partition seconds=120
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.faults.link import missing
from benchmarks.faults.scenarios import SCENARIOS, Figures
from edgeflock.papers.machine import machine


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.faults", description=__doc__.split("\n")[0])
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of the scenario's function")
    asked = parser.parse_args(arguments)
    if asked.scenario in ("partition", "bad-weather") and (lacks := missing()):
        parser.error(f"{asked.scenario} needs {lacks}")
    settings: dict[str, str | int | float] = {}
    for one in asked.settings:
        key, _, value = one.partition("=")
        settings[key] = value if key == "mode" else float(value) if "." in value else int(value)
    logging.basicConfig(level=logging.ERROR)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its processes end with it
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_play(asked.scenario, Path(folder) / asked.scenario, settings))
    print(json.dumps({"scenario": asked.scenario, **figures, "machine": machine()}, indent=1))


async def _play(scenario: str, folder: Path, settings: Mapping[str, str | int | float]) -> Figures:
    return await SCENARIOS[scenario](folder, **settings)


if __name__ == "__main__":
    main(sys.argv[1:])
