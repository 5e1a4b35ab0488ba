"""`edgeflock reproduce easgd`: figures 2 and 3 of the paper; easgd-rl: 4 and 5."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from edgeflock.papers.easgd import experiments, policies, policies_report
from edgeflock.papers.easgd.data import prepare
from edgeflock.papers.easgd.report import report
from edgeflock.papers.easgd.results import summarise
from edgeflock.papers.easgd.settings import EASGD, FULL, QUICK, STAGGERED
from edgeflock.papers.reproduce import by_part, measure, publish
from edgeflock.shared.errors import ConfigError


def reproduce_easgd(
    folder: str, out: Path, *, quick: bool, seeds: int, finished: bool, command: str, as_json: bool
) -> None:
    """Run every experiment, and leave easgd.json, .md and figures in `out`. Raises ConfigError.

    `folder` holds the data sets. With `finished` nothing is run: what has been is reported.
    """
    scale = QUICK if quick else FULL
    if seeds:
        scale = replace(scale, seeds=tuple(range(seeds)))
    data = prepare(Path(folder), out, scale.test, scale.digits)
    Console(stderr=True).print("Throughput on three links, and accuracy on the fastest")
    once = [*experiments.throughput(data, scale), *experiments.accuracy(data, scale)]
    again = [one for one in once if one.part.startswith("accuracy") and one.method in (EASGD, STAGGERED)]
    first = measure(once, out, scale.seeds[:1], finished)
    several = {id(one.experiment): one for one in measure(again, out, scale.seeds, finished)}
    results = by_part(several.get(id(one.experiment), one) for one in first)
    if not results:
        raise ConfigError(f"--finished: in {out} no run has ended yet")
    summary = summarise(results, command)
    publish("easgd", summary, report(results, summary, scale, out), out, as_json=as_json)


def reproduce_easgd_rl(
    out: Path, *, quick: bool, seeds: int, finished: bool, command: str, as_json: bool
) -> None:
    """Run every experiment, and leave easgd-rl.json, .md and figures in `out`. Raises ConfigError."""
    horizon = policies.QUICK if quick else policies.FULL
    if seeds:
        horizon = replace(horizon, seeds=tuple(range(seeds)))
    Console(stderr=True).print("Return of Acrobot and CartPole, and throughput of QBert")
    throughput = measure(policies.qbert(horizon), out, horizon.seeds[:1], finished)
    results = by_part([*measure(policies.learning(horizon), out, horizon.seeds, finished), *throughput])
    if not results:
        raise ConfigError(f"--finished: in {out} no run has ended yet")
    summary = policies_report.summarise(results, command)
    text = policies_report.report(results, summary, horizon, out)
    publish("easgd-rl", summary, text, out, as_json=as_json)
