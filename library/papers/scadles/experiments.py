"""The experiments of ScaDLES' evaluation as fleets, part by part."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from edgeflock.devices.emulation.config import FleetFile
from edgeflock.papers.reproduce import AS_PUBLISHED, Experiment, Method, fleet_file
from edgeflock.papers.scadles.settings import (
    ADAPTIVE,
    ASYNC,
    ASYNC_SPARSE,
    BASE_BATCH,
    BATCH,
    BUFFERED,
    CHANGING,
    CIFAR,
    DDL,
    DELTAS,
    DEVICES,
    DISTRIBUTIONS,
    FAST_STEP_MS,
    INJECTED,
    LABELLED,
    LABELLED_TASKS,
    LOCAL,
    LOCAL_STEPS,
    MEANS,
    MNIST,
    NOISY,
    NOISY_MODELS,
    PAIRS,
    QUORUM,
    RATES,
    RATIOS,
    ROUNDS,
    SCADLES,
    SLOWER,
    SMALL,
    SPEED_UP_TASKS,
    TASKS,
    TOP_5,
    Rates,
    ScadlesScale,
    ScadlesTask,
)

Kinds = dict[str, dict[str, object]]
"""Classes of devices: name -> settings."""


def rounds_of(task: ScadlesTask, distribution: str, method: Method, scale: ScadlesScale) -> int:
    """Rounds enough for the same accuracy: more of small batches, and on CIFAR-10 fewer of large ones."""
    factor = 1.0
    if method.name != DDL.name:
        factor = {"S1": 1.3, "S1'": 1.0}.get(distribution, 0.8 if task is CIFAR else 1.0)
    if method.name == LOCAL.name:
        factor *= 0.6 if task is CIFAR else 0.48
    return round(scale.rounds[task.name] * factor)


def speed_up(folder: str, scale: ScadlesScale, rates: Rates) -> Iterator[Experiment]:
    """Table VI and Figure 7: time to the same accuracy."""
    for task in SPEED_UP_TASKS:
        for distribution in DISTRIBUTIONS:
            for method in (DDL, SCADLES, ADAPTIVE, LOCAL):
                yield _run(f"speed-up, {task.name}", task, distribution, method, folder, scale, rates)


def grid(folder: str, scale: ScadlesScale) -> Iterator[Experiment]:
    """Each method at each learning rate, for as long as in the part it is for.

    A round of conventional training is the same 1,024 samples whatever the streams are: one distribution will
    do. S2' is like S2, and takes its rates. Adaptive compression takes the rate that is best without.
    """
    for task in SPEED_UP_TASKS:
        for distribution in ("S1", "S2", "S1'"):
            methods = [SCADLES, LOCAL]
            if distribution == "S1'":
                methods.append(DDL)
            if task is not PAIRS:
                methods += [ASYNC, ASYNC_SPARSE]
            for method in methods:
                for rate in RATES:
                    tried = replace(method, rate=rate)
                    yield _run(f"grid, {task.name}", task, distribution, tried, folder, scale, {})


def noisy(folder: str, scale: ScadlesScale) -> Iterator[Experiment]:
    """Small batches, whose noise limits the speed: nobody waits, and a larger batch is a better gradient.

    CIFAR-10 on the streams S2 and S2' divided by SMALL. Conventional training takes batches of BATCH / SMALL.
    """
    for model in NOISY_MODELS:
        for distribution in ("S2", "S2'"):
            for method in (DDL, SCADLES):
                method = replace(method, rate=NOISY[method.name])
                yield noisy_run(model, distribution, method, folder, scale)


def noisy_run(model: str, distribution: str, method: Method, folder: str, scale: ScadlesScale) -> Experiment:
    """A run on small batches. A random half of the test images is evaluated: ResNets take long."""
    kind, mean, deviation = re.split(r"[(,]", DISTRIBUTIONS[distribution].rstrip(")"))
    stream = f"{kind}({float(mean) / SMALL:g},{float(deviation) / SMALL:g})"
    settings = {**method.settings, "coordination.base_batch": BASE_BATCH // SMALL}
    if method.name == DDL.name:
        settings |= {"devices.batch_min": BATCH // SMALL, "devices.batch_max": BATCH // SMALL}
    data = CIFAR.data.format(folder=folder)
    method = replace(method, settings={**settings, "model.data": f"{data}?part=1/2"})
    kinds: Kinds = {"all": {"rate": stream, "step_ms": CIFAR.step_ms}}
    every = max(1, scale.noisy // 20)
    file = _fleet(method, f"edgeflock.client.zoo:{model}", data, scale.noisy, every, kinds)
    return Experiment(f"noisy, {model}", f"{distribution} {method.name}", method, file)


def growing(folder: str, scale: ScadlesScale, rates: Rates) -> Iterator[Experiment]:
    """Iterations that take longer with more samples: a tenth or half of an iteration on 64 is theirs.

    Conventional training takes as long as before.
    """
    for distribution in DISTRIBUTIONS:
        for part in (0.1, 0.5):
            extra = MNIST.step_ms * part / BATCH
            kind: dict[str, object] = {"step_ms": MNIST.step_ms * (1 - part), "sample_ms": extra}
            made = _run("growing", MNIST, distribution, SCADLES, folder, scale, rates, {"all": kind})
            yield replace(made, name=f"{distribution} {part:g}")


def changing(folder: str, scale: ScadlesScale, rates: Rates) -> Iterator[Experiment]:
    """Streams that change, in rounds and without: what constant rates hide."""
    for curve in CHANGING:
        for method in (SCADLES, QUORUM, ASYNC):
            method = replace(method, rate=_rate(method, MNIST, "S1'", rates))
            kind = {"rate": curve, "step_ms": FAST_STEP_MS}
            every = max(1, scale.changing // scale.evaluations[MNIST.name])
            data = MNIST.data.format(folder=folder)
            file = _fleet(method, MNIST.module, data, 0, every, {"all": kind}, seconds=scale.changing)
            yield Experiment("changing", f"{curve} {method.name}", method, file)


def buffers(scale: ScadlesScale) -> Iterator[Experiment]:
    """Table IV: samples that wait under persistence, and under truncation after a tenth of the iterations.

    The model does not matter, and is small.
    """
    for distribution, rate in DISTRIBUTIONS.items():
        for task in TASKS:
            iterations = scale.buffered * iterations_implied(distribution, task)
            for policy, part in (("persistence", 1.0), ("truncation", 0.1)):
                rounds = max(10, round(part * iterations))
                kind = {"rate": rate, "step_ms": task.step_ms, "buffer": policy}
                file = _fleet(
                    SCADLES, "edgeflock.client.zoo:DigitsLinear", "digits:", rounds, rounds, {"all": kind}
                )
                yield Experiment("buffers", f"{distribution} {task.paper} {policy}", SCADLES, file)


def iterations_implied(distribution: str, task: ScadlesTask) -> int:
    """Return T after which as many samples wait on all devices as Table IV says.

    Equation (2) at b = S: sum_i Q_i = (t - 1) T sum_i S_i + sum_i S_i
    """
    persisted = BUFFERED[distribution, task.paper][0]
    arriving = DEVICES * MEANS[distribution]
    return round((persisted / arriving - 1) / (task.step_ms / 1000 - 1))


def compression(folder: str, scale: ScadlesScale, rates: Rates) -> Iterator[Experiment]:
    """Table V, with streams of S1'."""
    for task in TASKS:
        part = f"compression, {task.name}"
        for ratio in RATIOS:
            for delta in DELTAS:
                settings = {**ROUNDS, "compression.select": ratio, "compression.threshold": delta}
                method = Method(SCADLES.name, settings, SCADLES.rate)
                made = _run(part, task, "S1'", method, folder, scale, rates)
                yield replace(made, name=f"CR {ratio:g}, delta {delta:g}")


def non_iid(folder: str, scale: ScadlesScale, rates: Rates) -> Iterator[Experiment]:
    """Figure 9: ten devices with one label each, with injection and without, against IID data.

    The learning rate is scaled by what streams in, 10 x 64 samples in the mean, and not by the copies that
    injection makes of some of them.
    """
    for task in LABELLED_TASKS:
        like = task if task in TASKS else CIFAR
        for name, labels, (alpha, beta) in (
            ("IID", 0, (0.0, 0.0)),
            ("one label", 1, (0.0, 0.0)),
            *((f"({alpha:g}, {beta:g})", 1, (alpha, beta)) for alpha, beta in INJECTED),
        ):
            kind = {"rate": DISTRIBUTIONS["S1'"], "step_ms": task.step_ms, "shares": True}
            extra = {
                "fleet.labels": labels,
                "injection.alpha": alpha,
                "injection.beta": beta,
                "coordination.base_batch": 0,
            }
            rate = _rate(SCADLES, like, "S1'", rates) * LABELLED * MEANS["S1'"] / BASE_BATCH
            method = replace(SCADLES, settings={**SCADLES.settings, **extra}, rate=rate)
            every = max(1, scale.injected // scale.evaluations[like.name])
            data = task.data.format(folder=folder)
            file = _fleet(method, task.module, data, scale.injected, every, {"all": kind}, LABELLED)
            yield Experiment(f"non-IID, {task.name}", name, method, file)


def injection_traffic(scale: ScadlesScale) -> Iterator[Experiment]:
    """Figure 10: samples shared per round. What is trained does not matter, and is small."""
    for distribution, rate in DISTRIBUTIONS.items():
        for alpha, beta in INJECTED:
            kind = {"rate": rate, "step_ms": CIFAR.step_ms, "shares": True}
            extra = {"fleet.labels": 1, "injection.alpha": alpha, "injection.beta": beta}
            method = replace(SCADLES, settings={**SCADLES.settings, **extra})
            rounds = 2 * scale.injected
            module = "edgeflock.client.zoo:DigitsLinear"
            file = _fleet(method, module, "digits:", rounds, rounds, {"all": kind}, LABELLED)
            yield Experiment("injected", f"{distribution} ({alpha:g}, {beta:g})", method, file)


def asynchronous(folder: str, scale: ScadlesScale, rates: Rates) -> Iterator[Experiment]:
    """For as long as the synchronous runs of the speed-up take; then with a quarter of the devices slower."""
    for task in TASKS:
        part = f"asynchronous, {task.name}"
        for distribution in DISTRIBUTIONS:
            for method in (ASYNC, ASYNC_SPARSE):
                yield _run(part, task, distribution, method, folder, scale, rates)
            seconds = rounds_of(task, distribution, SCADLES, scale) * task.step_ms / 1000
            kinds: Kinds = {"fast": {"share": 3}, "slow": {"share": 1, "step_ms": SLOWER * task.step_ms}}
            for method in (SCADLES, ADAPTIVE, ASYNC, ASYNC_SPARSE):
                made = _run(part, task, distribution, method, folder, scale, rates, kinds, seconds)
                yield replace(made, name=f"{made.name}, stragglers")


def _run(
    part: str,
    task: ScadlesTask,
    distribution: str,
    method: Method,
    folder: str,
    scale: ScadlesScale,
    rates: Rates,
    kinds: Kinds | None = None,
    seconds: float = 0.0,
) -> Experiment:
    """A run of so many rounds, or virtual seconds; asynchronous ones last as long as SCADLES' rounds."""
    method = replace(method, rate=_rate(method, task, distribution, rates))
    rounds = rounds_of(task, distribution, method, scale)
    if method.name in (ASYNC.name, ASYNC_SPARSE.name) and not seconds:
        seconds = rounds_of(task, distribution, SCADLES, scale) * task.step_ms / 1000
    every = max(1, rounds // scale.evaluations[task.name])
    if seconds:
        rounds, every = 0, max(1, every // SLOWER)
    # Local steps are on as many samples as one step, and take as long together.
    steps = LOCAL_STEPS if method.name == LOCAL.name else 1
    common = {"rate": DISTRIBUTIONS[distribution], "step_ms": task.step_ms / steps}
    made: Kinds = {name: {**common, **kind} for name, kind in (kinds or {"all": {}}).items()}
    file = _fleet(method, task.module, task.data.format(folder=folder), rounds, every, made, DEVICES, seconds)
    return Experiment(part, f"{distribution} {method.name}", method, file)


def _rate(method: Method, task: ScadlesTask, distribution: str, rates: Rates) -> float:
    """That of the grid which stands for this method and these streams; else the method's own."""
    gridded = "S1'" if method.name == DDL.name else distribution.replace("S2'", "S2")
    names = [method.name] + [SCADLES.name] * (method.name in (ADAPTIVE.name, QUORUM.name))
    return next(
        (rates[task.name, name, gridded] for name in names if (task.name, name, gridded) in rates),
        method.rate,
    )


def _fleet(
    method: Method,
    module: str,
    data: str,
    rounds: int,
    every: int,
    kinds: Kinds,
    devices: int = DEVICES,
    seconds: float = 0.0,
) -> FleetFile:
    """`rounds` and `every`, of evaluations, in updates of each device."""
    sections: dict[str, dict[str, Any]] = {
        "end": {"updates": rounds * devices},
        "local": {"batch": BATCH},
        "model": {"module": module, "data": data, "metrics": [] if data == "digits:" else [TOP_5]},
        "coordination": {"learning_rate": method.rate},
        "fleet": {"devices": devices, "data": data, "evaluate_every": every * devices, "seconds": seconds},
        "devices": kinds,
    }
    if method.name == LOCAL.name:
        sections["local"]["rate"] = method.rate
    return fleet_file(sections, AS_PUBLISHED | method.settings)
