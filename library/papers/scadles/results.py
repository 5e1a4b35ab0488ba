"""The results of ScaDLES' experiments: scadles.json."""

from statistics import fmean
from typing import Any

from edgeflock.papers.reproduce import Measured, Reproduction, Results
from edgeflock.papers.scadles.settings import (
    ADAPTIVE,
    ASYNC,
    ASYNC_SPARSE,
    BUFFERED,
    CIFAR,
    DDL,
    DEVICES,
    DISTRIBUTIONS,
    LABELLED,
    LABELLED_TASKS,
    LOCAL,
    MNIST,
    NOISY_MODELS,
    SCADLES,
    SPEED_UP_TASKS,
    TASKS,
    ScadlesTask,
)
from edgeflock.results.outcomes import Setting, row_value

SAMPLE_KB = 3
"""The size of a CIFAR-10 image in kB, as in the paper."""


Found = dict[str, dict[str, Measured]]
"""Part -> name -> its measurements."""


def common_target(found: Found, task: ScadlesTask) -> float | None:
    """The highest target that conventional training and dense ScaDLES reach on all streams that were run."""
    runs = [
        one.setting
        for one in found.get(f"speed-up, {task.name}", {}).values()
        if one.experiment.method.name in (DDL.name, SCADLES.name)
    ]
    reached = [
        target
        for target in task.targets
        if all(setting.interpolate(target, "seconds") is not None for setting in runs)
    ]
    return reached[-1] if runs and reached else None


def summarise(results: Results, options: Reproduction) -> dict[str, Any]:
    """Return the contents of scadles.json, without experiments that have not been run."""
    found = {part: {one.experiment.name: one for one in measured} for part, measured in results.items()}
    return {
        **options.about,
        "speed_up": {
            task.name: _speed_up(found, task) for task in SPEED_UP_TASKS if f"speed-up, {task.name}" in found
        },
        "noisy": {
            model: _noisy(found[f"noisy, {model}"]) for model in NOISY_MODELS if f"noisy, {model}" in found
        },
        "growing": _growing(found),
        "changing": {name: _changing(one) for name, one in found.get("changing", {}).items()},
        "buffers": _buffers(found.get("buffers", {})),
        "compression": {
            task.name: {name: _compression(one) for name, one in found[f"compression, {task.name}"].items()}
            for task in TASKS
            if f"compression, {task.name}" in found
        },
        "non_iid": {
            task.name: {name: _injected(one) for name, one in found[f"non-IID, {task.name}"].items()}
            for task in LABELLED_TASKS
            if f"non-IID, {task.name}" in found
        },
        "injected": {
            name: _injected(one)["kilobytes_a_round"] for name, one in found.get("injected", {}).items()
        },
        "asynchronous": {task.name: entries for task in TASKS if (entries := _asynchronous(found, task))},
    }


def _speed_up(found: Found, task: ScadlesTask) -> dict[str, Any]:
    target = common_target(found, task)
    runs = found[f"speed-up, {task.name}"]
    made: dict[str, Any] = {}
    for distribution in DISTRIBUTIONS:
        methods = {
            method.name: runs[f"{distribution} {method.name}"]
            for method in (DDL, SCADLES, ADAPTIVE, LOCAL)
            if f"{distribution} {method.name}" in runs
        }
        if methods:
            made[distribution] = {"target": target, **_compared(methods, target, task)}
    return made


def _compared(methods: dict[str, Measured], target: float | None, task: ScadlesTask) -> dict[str, Any]:
    """Methods on the same streams: virtual seconds, rounds and bytes to the target; speed-ups to any."""
    seeds = next(iter(methods.values())).setting.outcomes

    def to(key: str) -> dict[str, float | None]:
        return {
            name: one.setting.interpolate(target, key) if target else None for name, one in methods.items()
        }

    return {
        "seeds": {name: [run.end["seed"] for run in one.setting.outcomes] for name, one in methods.items()},
        "learning_rate": {name: one.experiment.method.rate for name, one in methods.items()},
        "seconds": to("seconds"),
        "rounds": {
            name: None if updates is None else updates / DEVICES for name, updates in to("updates").items()
        },
        "ingress": to("ingress"),
        "egress": to("egress"),
        "dense": {name: _dense(one.setting, to("updates")[name]) for name, one in methods.items()},
        "speed_up": _speed_ups(methods, target) if target else {},
        "speed_up_to": {f"{other:g}": _speed_ups(methods, other) for other in task.targets},
        "learnt": {name: learnt(one.setting) for name, one in methods.items()},
        "slowest_rate": fmean(min(stream["rate"] for stream in run.end["streams"].values()) for run in seeds),
    }


def _dense(setting: Setting, updates: float | None) -> float | None:
    """Return the bytes of as many updates as float32. None if unreached, or the model's size is unknown."""
    size = setting.outcomes[0].end.get("size")
    return 4 * size * updates if size and updates is not None else None


def _speed_ups(methods: dict[str, Measured], target: float) -> dict[str, float | None]:
    """How many times as fast as conventional training, by the mean times over the seeds."""
    seconds = {name: one.setting.interpolate(target, "seconds") for name, one in methods.items()}
    base = seconds.pop(DDL.name, None)
    return {name: base / taken if base and taken else None for name, taken in seconds.items()}


def _noisy(runs: dict[str, Measured]) -> dict[str, Any]:
    """Of each stream: what the methods came to, and the speed-up to each accuracy that both reached."""
    made: dict[str, Any] = {}
    for distribution in DISTRIBUTIONS:
        methods = {
            method.name: runs[f"{distribution} {method.name}"]
            for method in (DDL, SCADLES)
            if f"{distribution} {method.name}" in runs
        }
        if len(methods) == 2:
            levels = {f"{level:g}": _speed_ups(methods, level)[SCADLES.name] for level in CIFAR.targets}
            made[distribution] = {
                "seeds": min(len(one.setting.outcomes) for one in methods.values()),
                "learning_rate": {name: one.experiment.method.rate for name, one in methods.items()},
                "learnt": {name: learnt(one.setting) for name, one in methods.items()},
                "speed_up_to": levels,
            }
    return made


def _growing(found: Found) -> dict[str, Any]:
    """Seconds to the target, and how many times as fast as conventional training, which takes as before."""
    made: dict[str, Any] = {}
    target = common_target(found, MNIST)
    for name, one in found.get("growing", {}).items():
        base = found[f"speed-up, {MNIST.name}"].get(f"{name.partition(' ')[0]} {DDL.name}")
        if target is None or base is None:
            continue
        seconds, conventional = (run.setting.interpolate(target, "seconds") for run in (one, base))
        speed_up = conventional / seconds if conventional and seconds else None
        made[name] = {"target": target, "seconds": seconds, "speed_up": speed_up}
    return made


def _changing(one: Measured) -> dict[str, Any]:
    """What a fleet whose streams change got done, and what it lost."""
    ends = [outcome.end for outcome in one.setting.outcomes]
    streams = [list(end["streams"].values()) for end in ends]
    return {
        "seconds": one.experiment.file.fleet.seconds,
        "updates": fmean(end["updates"] for end in ends),
        "samples": fmean(sum(stream["came"] for stream in each) for each in streams),
        "dropped": fmean(
            sum(stream["drops"] for stream in each) / max(1, sum(stream["came"] for stream in each))
            for each in streams
        ),
        "gap": fmean(max(stream["gap"] for stream in each) for each in streams),
        **learnt(one.setting),
    }


def _buffers(runs: dict[str, Measured]) -> dict[str, Any]:
    """Samples that wait when an iteration begins, after all iterations."""
    made: dict[str, Any] = {}
    for (distribution, model), (persisted, truncated, reduction) in BUFFERED.items():
        name = f"{distribution} {model}"
        if not {f"{name} persistence", f"{name} truncation"} <= set(runs):
            continue
        kept = runs[f"{name} persistence"]
        every = [_depths(outcome.end, "depth") for outcome in kept.setting.outcomes]
        short = [_depths(outcome.end, "deepest") for outcome in runs[f"{name} truncation"].setting.outcomes]
        total = fmean(map(sum, every))
        made[name] = {
            "rounds": kept.experiment.file.end.updates // DEVICES,
            "persisted": {"sum": total, "largest": fmean(map(max, every))},
            "truncated": {"sum": fmean(map(sum, short)), "largest": fmean(map(max, short))},
            "reduction": {
                "sum_over_sum": total / fmean(map(sum, short)),
                "sum_over_largest": total / fmean(map(max, short)),
            },
            "paper": {"persisted": persisted, "truncated": truncated, "reduction": reduction},
        }
    return made


def _depths(end: dict[str, Any], key: str) -> list[int]:
    return [stream[key] for stream in end["streams"].values()]


def _compression(one: Measured) -> dict[str, Any]:
    tallies = [outcome.end["classes"]["all"] for outcome in one.setting.outcomes]
    traffic = one.setting.traffic()
    return {
        "cnc": fmean(tally["compressed"] / tally["updates"] for tally in tallies),
        "floats": fmean(tally["floats"] for tally in tallies),
        "ingress": traffic.ingress,
        "egress": traffic.egress,
        "dense": traffic.dense,
        **learnt(one.setting),
    }


def learnt(setting: Setting) -> dict[str, float | None]:
    """Means over the seeds: of the best of a run, its last, and the mean of its last five evaluations.

    Top-5 is that of the last; None if the runs did not measure it.
    """
    top_5 = [run.rows[-1].get("metrics", {}).get("top_5") for run in setting.outcomes]
    return {
        "accuracy": fmean(setting.best()),
        "last_accuracy": fmean(setting.last()),
        "last_five_accuracy": fmean(setting.last_five()),
        "top_5": None if None in top_5 else fmean(top_5),
    }


def _injected(one: Measured) -> dict[str, Any]:
    tallies = [outcome.end["classes"]["all"] for outcome in one.setting.outcomes]
    rounds = [tally["updates"] / LABELLED for tally in tallies]
    each = zip(tallies, rounds, strict=True)
    return {
        **learnt(one.setting),
        "kilobytes_a_round": fmean(SAMPLE_KB * tally["shared"] / count for tally, count in each),
        "bytes_a_round": fmean(
            tally["shared_bytes"] / count for tally, count in zip(tallies, rounds, strict=True)
        ),
    }


def _asynchronous(found: Found, task: ScadlesTask) -> dict[str, Any]:
    """Accuracy by the same second and in the same bytes, both ways: dense with dense, sparse with sparse.

    Both are those of whichever run has less of them by its end.
    """
    apart = found.get(f"asynchronous, {task.name}", {})
    together = found.get(f"speed-up, {task.name}", {})
    target = common_target(found, task)
    made: dict[str, Any] = {}
    for distribution in DISTRIBUTIONS:
        for suffix, rounds in (("", together), (", stragglers", apart)):
            for sync, free in ((SCADLES, ASYNC), (ADAPTIVE, ASYNC_SPARSE)):
                one = rounds.get(f"{distribution} {sync.name}{suffix}")
                other = apart.get(f"{distribution} {free.name}{suffix}")
                if one is None or other is None:
                    continue
                entry: dict[str, Any] = {"rate": {sync.name: one.experiment.method.rate}}
                entry["rate"][free.name] = other.experiment.method.rate
                for key in ("seconds", "traffic"):
                    where = min(row_value(run.setting.outcomes[0].rows[-1], key) for run in (one, other))
                    entry[key] = {"at": where}
                    for name, run in (("rounds", one), ("async", other)):
                        cut = run.setting.truncate(key, where)
                        entry[key][name] = learnt(cut) if cut else None
                entry["seconds_to_target"] = {
                    "target": target,
                    "rounds": one.setting.interpolate(target, "seconds") if target else None,
                    "async": other.setting.interpolate(target, "seconds") if target else None,
                }
                made[f"{distribution}{suffix}, {'dense' if sync is SCADLES else 'sparse'}"] = entry
    return made
