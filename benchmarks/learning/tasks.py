"""What is learned: a model, its data, the size of a batch, and how many gradients are computed.

CPU minutes of a cell with ten evaluations, on one thread of an AMD EPYC that other work shared. Those of SGD
on one machine are reckoned from 120 gradients. So is what the product adds at n = 10 (selection, coding,
journal); but its first steps are dearer than later ones: whole cells of cifar took 1.1 and 1.35 minutes.

    task         parameters  gradients    SGD  the product adds
    digits           38,282      1,500   0.03              0.10
    transformer      10,498      3,000   0.17              0.13
    regression        4,673      4,000   0.03              0.12
    mnist           211,690      3,000   0.24              0.32
    speech          333,194      2,000   0.21              0.23
    cifar           122,570      4,000   1.01              0.66
    tagging         298,129      3,000   0.37              0.36
    resnet-gn       272,474      3,000   8.1                1.2
    resnet-bn       274,042      3,000   6.4                1.2
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.learning import data
from benchmarks.learning.data import Data

NETS = "benchmarks.learning.nets:"
ZOO = "edgeflock.client.zoo:"


@dataclass(frozen=True, slots=True)
class Task:
    """One of the bench."""

    name: str
    title: str
    module: str
    load: Callable[[], Data]
    batch: int
    gradients: int
    """That every arm computes, on all devices together."""
    loss: str = "cross_entropy"
    evaluations: int = 10
    devices: int = 200
    """At most: each needs a batch of its own."""

    @property
    def metric(self) -> str:
        """What `accuracy` is."""
        return "R2" if self.loss == "mse" else "accuracy"


_CIFAR = partial(data.of_classes, "npz:{folder}/cifar10_jpgblob.npz")
_MNIST = partial(data.of_classes, "npz:{folder}/mnist.npz")
_SPEECH = partial(data.of_classes, "npz:{folder}/fsdd_logmel.npz")
_DIGITS = partial(data.of_classes, "digits:")
_VIT = "benchmarks.models.nets:ViT"

TASKS = {
    task.name: task
    for task in (
        Task("digits", "digits, CNN", ZOO + "DigitsCNN", _DIGITS, 10, 1_500, devices=50),
        Task("transformer", "digits, a tiny vision transformer", _VIT, _DIGITS, 10, 3_000, devices=50),
        Task(
            "regression", "demand from six columns", NETS + "SixColumns", data.electricity, 32, 4_000, "mse"
        ),
        Task("mnist", "MNIST, CNN", ZOO + "PaperCNN", _MNIST, 10, 3_000),
        Task("speech", "spoken digits, CNN", ZOO + "SpeechCNN", _SPEECH, 10, 2_000),
        Task("cifar", "CIFAR-10, the CNN of TensorFlow's tutorial", NETS + "TutorialCNN", _CIFAR, 32, 4_000),
        Task("tagging", "parts of speech, LSTM", NETS + "Tagger", data.tagged_words, 32, 3_000),
        Task("resnet-gn", "CIFAR-10, ResNet-20 with GroupNorm", NETS + "ResNet20", _CIFAR, 32, 3_000),
        Task("resnet-bn", "CIFAR-10, ResNet-20 with BatchNorm", NETS + "ResNet20BN", _CIFAR, 32, 3_000),
    )
}
"""By name, small ones first. scikit-learn's digits are the set that ships with a package: it has none like
Fashion-MNIST.
"""
