"""ScaDLES' evaluation (Tyagi, Swany, 2022, section V): its streams, its methods, stand-ins for its models.

16 devices with streams of Table I's rates, iterations of 1.2 and 1.6 virtual seconds as the paper's two
models have. What is trained is smaller: a CNN with BatchNorm on CIFAR-10 in the place of ResNet152, and an
MLP on MNIST in that of VGG19 on CIFAR-100. The speed-up has pairs of digits, too: 100 classes.
10 devices where each has one label.
"""

from dataclasses import dataclass, replace

from edgeflock.papers.reproduce import Method, Scale

DISTRIBUTIONS = {
    "S1": "uniform(38,24)",
    "S2": "uniform(300,112)",
    "S1'": "normal(64,24)",
    "S2'": "normal(256,28)",
}
"""Table I."""

MEANS = {"S1": 38, "S2": 300, "S1'": 64, "S2'": 256}

DEVICES, LABELLED, BATCH = 16, 10, 64
BASE_BATCH = DEVICES * BATCH
"""B of linear scaling: the global batch of conventional training, so that both mean the same by a learning
rate."""


@dataclass(frozen=True, slots=True)
class ScadlesTask:
    """A model and its data."""

    name: str
    paper: str
    """The paper's model that this one replaces."""
    module: str
    data: str
    """Its URI, with {folder} for that of the archives."""
    step_ms: int
    targets: tuple[float, ...]
    """Accuracies up to which virtual time is compared."""


CIFAR = ScadlesTask(
    "CIFAR-10",
    "ResNet152",
    "edgeflock.client.zoo:SvhnBN",
    "npz:{folder}/cifar10_jpgblob.npz",
    1200,
    (0.2, 0.25, 0.3, 0.35, 0.38, 0.4, 0.42, 0.45, 0.5, 0.55),
)
MNIST = ScadlesTask(
    "MNIST",
    "VGG19",
    "edgeflock.client.zoo:PaperMLP",
    "npz:{folder}/mnist.npz",
    1600,
    (0.5, 0.8, 0.85, 0.9, 0.92, 0.93, 0.94, 0.95),
)
PAIRS = ScadlesTask(
    "pairs of digits",
    "VGG19",
    "edgeflock.papers.scadles.stand_ins:PairsCNN",
    "edgeflock.papers.scadles.stand_ins:digit_pairs?path={folder}/mnist.npz",
    1600,
    (0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85),
)
TASKS = (CIFAR, MNIST)
SPEED_UP_TASKS = (*TASKS, PAIRS)
TOP_5 = "edgeflock.papers.scadles.stand_ins:top_5"

_DENSE = {"compression.select": 1.0}
ROUNDS = {"coordination.mode": "rounds", "coordination.base_batch": BASE_BATCH}
_EACH = {"coordination.rule": "adacomp", "coordination.base_batch": BATCH}
_FIXED = {"devices.batch_min": BATCH, "devices.batch_max": BATCH, "devices.buffer": "persistence"}

DDL = Method("DDL", {**ROUNDS, **_DENSE, **_FIXED}, 0.4)
"""Conventional training: 64 samples a device. It waits for every device, and drops nothing."""
SCADLES = Method("ScaDLES", {**ROUNDS, **_DENSE}, 0.4)
ADAPTIVE = Method(
    "ScaDLES, adaptive", {**ROUNDS, "compression.select": 0.1, "compression.threshold": 0.3}, 0.4
)
"""As in Table VI: CR 0.1, delta 0.3."""
LOCAL_STEPS = 4
LOCAL = Method(
    "ScaDLES, local steps", {"coordination.mode": "rounds", **_DENSE, "local.steps": LOCAL_STEPS}, 0.4
)
"""Beyond the paper: a device takes its batch as four steps on a quarter of it each; rounds exchange the sums.
They weigh r_i as before, at the learning rate of the steps, without linear scaling."""
ASYNC = Method("async", {**_EACH, **_DENSE}, 0.4)
"""The same streams and batches, but each update applies at once: b / B of the learning rate, divided by each
parameter's staleness (AdaComp). B is a device's 64 here, since a parameter's staleness is about 16."""
ASYNC_SPARSE = Method("async, c=0.1", {**_EACH, "compression.select": 0.1}, 0.2)

RATES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""The grid of learning rates."""

Rates = dict[tuple[str, str, str], float]
"""(task, method, distribution) -> learning rate, where it is not the method's."""

BEST: Rates = {
    ("CIFAR-10", "DDL", "S1'"): 0.2,
    ("CIFAR-10", "ScaDLES, local steps", "S1"): 0.1,
    ("CIFAR-10", "ScaDLES, local steps", "S2"): 0.1,
    ("CIFAR-10", "ScaDLES, local steps", "S1'"): 0.1,
    ("CIFAR-10", "ScaDLES", "S1"): 0.4,
    ("CIFAR-10", "ScaDLES", "S2"): 0.05,
    ("CIFAR-10", "ScaDLES", "S1'"): 0.2,
    ("MNIST", "DDL", "S1'"): 0.8,
    ("MNIST", "ScaDLES", "S1"): 1.6,
    ("MNIST", "ScaDLES", "S2"): 0.2,
    ("MNIST", "ScaDLES", "S1'"): 0.8,
    ("MNIST", "async", "S1"): 1.6,
    ("MNIST", "async", "S2"): 0.1,
    ("MNIST", "async", "S1'"): 0.8,
    ("MNIST", "async, c=0.1", "S1"): 0.8,
    ("MNIST", "async, c=0.1", "S2"): 0.05,
    ("MNIST", "async, c=0.1", "S1'"): 0.4,
}
"""The results of the grid."""

SLOWER = 4
"""How much longer a quarter of the devices take, as stragglers."""

CHANGING = ("60", "sine:12..108/60s", "square:114..6/60s", "square:120..0/30s")
"""Curves of one mean: steady, waves, falls to a twentieth, and pauses of 15 s."""
FAST_STEP_MS = 200
"""Of an iteration there, so that devices wait for their streams; one of a second waits for nothing."""
QUORUM = Method(
    "ScaDLES, quorum of half", {**SCADLES.settings, "coordination.quorum": DEVICES // 2}, SCADLES.rate
)
"""A round does not wait for devices whose streams are low."""

GROUP_NORM = replace(CIFAR, name="CIFAR-10, GroupNorm", module="edgeflock.client.zoo:SvhnGN")
SHARED_NORM = replace(
    CIFAR, name="CIFAR-10, shared statistics", module="edgeflock.papers.scadles.stand_ins:SvhnShared"
)
LABELLED_TASKS = (*TASKS, GROUP_NORM, SHARED_NORM)
"""For devices with one label each: GroupNorm has no statistics of a batch, and others use those of all."""

SMALL = 16
"""Streams and batches are divided by this where noise limits the speed."""
NOISY_MODELS = ("SvhnGN", "ResNetGN", "ResNetBN")
"""Models of zoo that are trained there: the CNN with GroupNorm, and two of twice its size."""
NOISY = {"DDL": 0.05, "ScaDLES": 0.02}
"""Method -> learning rate there: the best of four or five with the CNN on S2, and of two with ResNetGN."""

LONG_PARTS = (
    "noisy", f"speed-up, {PAIRS.name}", "non-IID, CIFAR-10, ", f"asynchronous, {CIFAR.name}"
)  # fmt: skip
"""How the names of parts begin that --quick leaves out."""

RATIOS, DELTAS = (0.1, 0.01), (0.1, 0.2, 0.3, 0.4)
"""Table V."""

INJECTED = ((0.5, 0.5), (0.25, 0.25), (0.1, 0.1), (0.05, 0.05))
"""(alpha, beta) of Figures 9 and 10."""

BUFFERED = {
    ("S1", "ResNet152"): (2.9e5, 129, 2238),
    ("S1", "VGG19"): (1e5, 118, 848),
    ("S2", "ResNet152"): (4.36e6, 633, 6889),
    ("S2", "VGG19"): (4e6, 523, 7830),
    ("S1'", "ResNet152"): (6.2e5, 143, 4340),
    ("S1'", "VGG19"): (3.7e5, 129, 2861),
    ("S2'", "ResNet152"): (3.6e6, 384, 9429),
    ("S2'", "VGG19"): (2.5e6, 360, 6956),
}
"""Table IV: samples persisted, samples truncated, reduction."""


@dataclass(frozen=True, slots=True)
class ScadlesScale(Scale):
    """The extent of the experiments."""

    rounds: dict[str, int]
    """Rounds of conventional training, by task."""
    injected: int
    """Rounds of the runs on devices with one label each."""
    noisy: int
    """Rounds of the runs on small batches."""
    changing: int
    """Virtual seconds of the runs on streams that change."""
    buffered: float
    """Part of the iterations that Table IV implies for which buffers are filled."""
    evaluations: dict[str, int]
    """Evaluations of a run, by task."""


FULL = ScadlesScale(
    rounds={"CIFAR-10": 400, "MNIST": 250, "pairs of digits": 250},
    injected=400,
    noisy=400,
    changing=240,
    buffered=1.0,
    evaluations={"CIFAR-10": 40, "MNIST": 40, "pairs of digits": 40},
    seeds=(0, 1, 2),
)
QUICK = ScadlesScale(
    rounds={"CIFAR-10": 12, "MNIST": 40, "pairs of digits": 30},
    injected=15,
    noisy=20,
    changing=60,
    buffered=0.02,
    evaluations={"CIFAR-10": 4, "MNIST": 15, "pairs of digits": 15},
    seeds=(0,),
)
