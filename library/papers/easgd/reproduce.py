"""`edgeflock reproduce easgd`: figures 2 and 3 of the paper; easgd-rl: 4 and 5."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgeflock.papers.easgd import policies, policies_report, settings
from edgeflock.papers.easgd.report import report, summarise
from edgeflock.papers.easgd.settings import EASGD, FULL, QUICK, STAGGERED, TASKS
from edgeflock.papers.reproduce import Measured, Reproduction, Results, by_part, measure, narrate
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError


def reproduce_easgd(options: Reproduction) -> None:
    """Run every experiment, and leave easgd.json, .md and figures in `options.out`. Raises ConfigError."""
    scale = options.scale(FULL, QUICK)
    data = prepare(Path(options.data), options.out, scale.test, scale.digits)
    narrate("Throughput on three links, and accuracy on the fastest")
    once = [*settings.throughput(data, scale), *settings.accuracy(data, scale)]
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


WINDOW = 20

Images = NDArray[np.uint8]


def prepare(folder: Path, out: Path, test: int, digits: bool) -> dict[str, str]:
    """Write archives of `test` held-out samples to `out`, 0 of all, and return task -> URI.

    They are made from those in `folder`; with `digits`, the MLP's from MNIST. Raises ConfigError.
    """
    out.mkdir(parents=True, exist_ok=True)
    images, words, framed = (out / f"{name}-{test}.npz" for name in ("images", "words", "digits"))
    if not images.exists():
        make_images(folder / "cifar10_jpgblob.npz", images, test)
    if not words.exists():
        make_words(folder / "pos_ud_ewt.npz", words, test)
    if digits and not framed.exists():
        make_digits(folder / "mnist.npz", framed, test)
    files = {"MLP": framed if digits else images, "CNN": images, "LSTM": words}
    return {task.name: f"npz:{files[task.name]}" for task in TASKS}


def make_images(source: Path, target: Path, test: int) -> None:
    """Leave x (uint8 [n, 3, 32, 32]) and y of both splits of `source` in `target`."""
    _make(source, target, test, lambda x: x)


def make_digits(source: Path, target: Path, test: int) -> None:
    """The same of images of [1, 28, 28]: in a frame two wide, and three times as a colour."""
    _make(source, target, test, lambda x: np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2))).repeat(3, axis=1))


def _make(source: Path, target: Path, test: int, shaped: Callable[[Images], Images]) -> None:
    train, held_out = (datasets.load(f"npz:{source}", split) for split in ("train", "test"))
    few = slice(test or None)
    np.savez(
        target,
        x_train=shaped(np.rint(train.x * 255).astype(np.uint8)),
        y_train=train.y,
        x_test=shaped(np.rint(held_out.x[few] * 255).astype(np.uint8)),
        y_test=held_out.y[few],
    )


def make_words(source: Path, target: Path, test: int) -> None:
    """Leave x (float32 [n, 20]) and y, the Penn tag of each word (int64 [n, 20]), of both splits in `target`.

    Sentences follow each other as in the text, windows go across them, what is left at the end is left out.
    """
    if not source.is_file():
        raise ConfigError(f"data 'npz:{source}': there is no such file")
    arrays = {}
    with np.load(source) as archive:
        for split, most in (("train", 0), ("test", test)):
            for name, key in (("x", "w"), ("y", "xpos")):
                if f"{key}_{split}" not in archive:
                    raise ConfigError(f"data 'npz:{source}': has no array {key}_{split}")
                words = archive[f"{key}_{split}"]
                windows = words[: words.size // WINDOW * WINDOW].reshape(-1, WINDOW)[: most or None]
                arrays[f"{name}_{split}"] = windows.astype(np.float32 if name == "x" else np.int64)
    np.savez(target, **arrays)
