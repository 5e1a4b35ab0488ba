"""`edgeflock reproduce scheduling`: average completion times, the paper's and beyond."""

from dataclasses import replace

from edgeflock.papers.reproduce import Reproduction, narrate
from edgeflock.papers.scheduling.completion import SCENARIOS
from edgeflock.papers.scheduling.experiments import FULL, QUICK, decided, figure_1
from edgeflock.papers.scheduling.report import report, summarise


def reproduce_scheduling(options: Reproduction) -> None:
    """Leave scheduling.json, .md and figures in `options.out`. `seeds` counts draws of the workers."""
    scale = QUICK if options.quick else FULL
    if options.seeds:
        scale = replace(scale, draws=options.seeds)
    drawn = {one.name: figure_1(one, scale, narrate) for one in SCENARIOS}
    played = {one.name: list(decided(one, scale, narrate)) for one in SCENARIOS}
    options.out.mkdir(parents=True, exist_ok=True)
    about = {"draws": scale.draws, "samples": scale.samples, "rounds": scale.rounds}
    summary = summarise(drawn, played, {**options.about, **about})
    options.publish("scheduling", summary, report(summary, drawn, options.out))
