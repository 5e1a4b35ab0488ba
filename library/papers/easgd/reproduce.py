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


def reproduce_easgd(options: Reproduction) -> None:
    """Run every experiment, and leave easgd.json, .md and figures in `options.out`. Raises ConfigError."""
    scale = options.scale(FULL, QUICK)
    data = prepare(Path(options.data), options.out, scale.test, scale.digits)
    narrate("Throughput on three links, and accuracy on the fastest")
    once = [*experiments.throughput(data, scale), *experiments.accuracy(data, scale)]
    again = [one for one in once if one.part.startswith("accuracy") and one.method in (EASGD, STAGGERED)]
    first = measure(options, once, scale.seeds[:1])
    several = {id(one.experiment): one for one in measure(options, again, scale.seeds)}
    results = _found(options, (several.get(id(one.experiment), one) for one in first))
    summary = summarise(results, options)
    options.publish("easgd", summary, report(results, summary, scale, options.out))


def reproduce_easgd_rl(options: Reproduction) -> None:
    """Run every experiment, and leave easgd-rl.json, .md and figures in `options.out`. Raises ConfigError."""
    horizon = options.scale(policies.FULL, policies.QUICK)
    narrate("Return of Acrobot and CartPole, and throughput of QBert")
    throughput = measure(options, policies.qbert(horizon), horizon.seeds[:1])
    results = _found(options, [*measure(options, policies.learning(horizon), horizon.seeds), *throughput])
    summary = policies_report.summarise(results, options)
    options.publish("easgd-rl", summary, policies_report.report(results, summary, horizon, options.out))


def _found(options: Reproduction, measured: Iterable[Measured]) -> Results:
    """Return the results by part. Raises ConfigError without any."""
    if results := by_part(measured):
        return results
    raise ConfigError(f"--finished: in {options.out} no run has ended yet")
