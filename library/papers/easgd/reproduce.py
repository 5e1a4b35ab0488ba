"""`edgeflock reproduce easgd`: figures 2 and 3 of the paper; easgd-rl: 4 and 5."""

from collections.abc import Iterable
from pathlib import Path

from edgeflock.papers.easgd import experiments, policies, policies_report
from edgeflock.papers.easgd.data import prepare
from edgeflock.papers.easgd.report import report
from edgeflock.papers.easgd.results import summarise
from edgeflock.papers.easgd.settings import EASGD, FULL, QUICK, STAGGERED
from edgeflock.papers.reproduce import Measured, Reproduction, Results, by_part, measure, narrate
from edgeflock.shared.errors import ConfigError


def reproduce_easgd(asked: Reproduction) -> None:
    """Run every experiment, and leave easgd.json, .md and figures in `asked.out`. Raises ConfigError."""
    scale = asked.scale(FULL, QUICK)
    data = prepare(Path(asked.data), asked.out, scale.test, scale.digits)
    narrate("Throughput on three links, and accuracy on the fastest")
    once = [*experiments.throughput(data, scale), *experiments.accuracy(data, scale)]
    again = [one for one in once if one.part.startswith("accuracy") and one.method in (EASGD, STAGGERED)]
    first = measure(asked, once, scale.seeds[:1])
    several = {id(one.experiment): one for one in measure(asked, again, scale.seeds)}
    results = _found(asked, (several.get(id(one.experiment), one) for one in first))
    summary = summarise(results, asked)
    asked.publish("easgd", summary, report(results, summary, scale, asked.out))


def reproduce_easgd_rl(asked: Reproduction) -> None:
    """Run every experiment, and leave easgd-rl.json, .md and figures in `asked.out`. Raises ConfigError."""
    horizon = asked.scale(policies.FULL, policies.QUICK)
    narrate("Return of Acrobot and CartPole, and throughput of QBert")
    throughput = measure(asked, policies.qbert(horizon), horizon.seeds[:1])
    results = _found(asked, [*measure(asked, policies.learning(horizon), horizon.seeds), *throughput])
    summary = policies_report.summarise(results, asked)
    asked.publish("easgd-rl", summary, policies_report.report(results, summary, horizon, asked.out))


def _found(asked: Reproduction, measured: Iterable[Measured]) -> Results:
    """Return the results by part. Raises ConfigError without any."""
    if results := by_part(measured):
        return results
    raise ConfigError(f"--finished: in {asked.out} no run has ended yet")
