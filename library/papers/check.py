"""A cheap part of the papers' figures: measured again, and compared with docs/results/check.json."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from edgeflock.papers.adacomp import experiments as adacomp
from edgeflock.papers.reproduce import Experiment, Reproduction, measure
from edgeflock.papers.scheduling import experiments as scheduling
from edgeflock.papers.scheduling.completion import SCENARIOS
from edgeflock.shared.errors import ConfigError, EdgeflockError

BANDS = {"accuracy": (0.05, 0.0), "bytes": (0.0, 0.02), "gain": (0.03, 0.0)}
"""Kind of figure -> how far it may be from the committed one: an absolute part, and a relative one.

One machine gives the same bits again. Another's torch may round differently, and runs then drift apart.
"""

_QUICK = replace(adacomp.QUICK, updates=400, evaluate_every=400)
_FULL = replace(adacomp.QUICK, updates=2_000, evaluate_every=2_000)


def _experiments(data: str, *, quick: bool) -> Iterator[Experiment]:
    yield next(adacomp.record(data, _QUICK))
    if not quick:
        yield from adacomp.figure_3(data, _FULL, (adacomp.ASGD, adacomp.ADACOMP))
        yield from list(adacomp.table_2(data, 60_000, _FULL, adacomp.ADACOMP))[:2]


def measure_again(options: Reproduction) -> dict[str, float]:
    """Return each figure of the cheap part, or with `quick` of its cheapest part, by its name and kind."""
    figures: dict[str, float] = {}
    for one in measure(options, _experiments(options.data, quick=options.quick), (0,)):
        name = f"{one.experiment.part}, {one.experiment.name}, {one.experiment.file.end.updates:,} updates"
        figures[f"{name}: accuracy"] = one.setting.unaveraged.outcomes[0].last
        figures[f"{name}: bytes"] = one.setting.outcomes[0].rows[-1]["ingress"]
    scale = scheduling.SchedulingScale(draws=8, samples=2_000, rounds=0)
    for scenario in SCENARIOS:
        drawn = scheduling.figure_1(scenario, scale, lambda text: None)
        figures[f"scheduling, {scenario.name}, SS over RA: gain"] = fmean(one.gain for one in drawn)
    return figures


def check_figures(options: Reproduction, committed: Path = Path("docs/results/check.json")) -> None:
    """Measure again, leave check.json in `options.out`, and compare each figure with that of `committed`.

    Raises ConfigError if `committed` cannot be read, and EdgeflockError if a figure is outside of its band.
    """
    try:
        expected = json.loads(committed.read_text())["figures"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"--check {str(committed)!r}: {error}; run it in a checkout of Edgeflock"
        ) from error
    began, figures = time.monotonic(), measure_again(options)
    about = {**options.about, "seeds": [0], "seconds": round(time.monotonic() - began, 1)}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "check.json").write_text(json.dumps({**about, "figures": figures}, indent=1) + "\n")
    verdicts = compare(figures, expected)
    for name, verdict in verdicts.items():
        print(f"{name}: {verdict or 'as committed'}")
    if wrong := sum(map(bool, verdicts.values())):
        raise EdgeflockError(f"{wrong} of {len(verdicts)} figures are not as committed in {committed}")


def compare(figures: Mapping[str, float], expected: Mapping[str, float]) -> dict[str, str]:
    """Return what is wrong with each figure; "": it is within its band of the expected one."""
    verdicts = dict.fromkeys(figures, "")
    for name, value in figures.items():
        absolute, relative = BANDS[name.rpartition(": ")[2]]
        if name not in expected:
            verdicts[name] = f"{value:g} is not among the committed figures"
        elif abs(value - expected[name]) > (band := absolute + relative * abs(expected[name])):
            verdicts[name] = f"{value:g} is not within {band:g} of {expected[name]:g}"
    return verdicts
