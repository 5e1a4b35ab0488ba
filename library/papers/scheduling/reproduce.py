"""`edgeflock reproduce scheduling`: average completion times, the paper's and beyond."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from edgeflock.papers.machine import machine
from edgeflock.papers.reproduce import publish
from edgeflock.papers.scheduling.delays import SCENARIOS
from edgeflock.papers.scheduling.experiments import FULL, QUICK, decided, figure_1
from edgeflock.papers.scheduling.report import report, summarise


def reproduce_scheduling(out: Path, *, quick: bool, seeds: int, command: str, as_json: bool) -> None:
    """Leave scheduling.json, .md and figures in `out`.

    `seeds` is how often the workers are drawn; 0: as the scale has it.
    """
    scale = QUICK if quick else FULL
    if seeds:
        scale = replace(scale, draws=seeds)
    narration = Console(stderr=True)
    drawn = {one.name: figure_1(one, scale, narration.print) for one in SCENARIOS}
    played = {one.name: list(decided(one, scale, narration.print)) for one in SCENARIOS}
    about = {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "draws": scale.draws,
        "samples": scale.samples,
        "rounds": scale.rounds,
    }
    out.mkdir(parents=True, exist_ok=True)
    summary = summarise(drawn, played, about)
    publish("scheduling", summary, report(summary, drawn, out), out, as_json=as_json)
