"""A round of participants and an aggregator in one process, in which devices may fall silent at any step."""

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeflock.shared.identity import new_key
from edgeflock.shared.secure_sum.aggregator import Aggregator, check_keys
from edgeflock.shared.secure_sum.masks import Vector, VectorShape
from edgeflock.shared.secure_sum.messages import SumAbandoned, SumStep
from edgeflock.shared.secure_sum.participant import RoundParticipant, RoundTerms

TERMS = RoundTerms("run", 7, entries=40, tensors=2, threshold=2 / 3, fewest=3)
POSITIONS = np.arange(1, 40, 3)
RANGES = np.array([0.5, 2.0], np.float32)

Tamper = Callable[[int, SumStep, bytes], bytes]
"""(device, the step that it has sent, the server's answer) -> the answer that it gets."""


class Round:
    """Devices 100, 101, ... with a vector each."""

    def __init__(
        self, vectors: Sequence[Vector], shape: VectorShape, terms: RoundTerms = TERMS, seed: int = 0
    ) -> None:
        self.vectors = {100 + place: vector for place, vector in enumerate(vectors)}
        self.shape, self.terms = shape, terms
        randbytes = random.Random(seed).randbytes
        self.devices = {device: RoundParticipant(terms, new_key(), randbytes) for device in self.vectors}
        self.refusals: dict[int, str] = {}
        """Device -> why it abandoned the round."""
        self.sent: dict[SumStep, dict[int, bytes]] = {}

    def run(
        self,
        silent: Mapping[int, SumStep] | None = None,
        tamper: Tamper = lambda device, step, answer: answer,
        positions: NDArray[np.int64] = POSITIONS,
    ) -> Aggregator:
        """Run the round. A device of `silent` sends nothing from this step on."""
        silent = silent or {}

        def is_silent(device: int, step: SumStep) -> bool:
            return device in self.refusals or silent.get(device, SumStep.ABANDONED) <= step

        bodies = {device: one.advertise() for device, one in self.devices.items()}
        self.sent[SumStep.KEYS] = bodies
        keys = {
            device: check_keys(self.terms.run, body)[1]
            for device, body in bodies.items()
            if not is_silent(device, SumStep.KEYS)
        }
        aggregator = Aggregator(self.terms, keys, RANGES, positions, self.shape)
        for step in (SumStep.SHARES, SumStep.MASKED, SumStep.SIGNATURE, SumStep.SECRETS):
            for device in sorted(aggregator.missing):
                answer = tamper(device, SumStep(step - 1), aggregator.answer(device))
                if is_silent(device, step):
                    continue
                try:
                    body = self._next(device, step, answer)
                except SumAbandoned as abandoned:
                    self.refusals[device] = str(abandoned)
                    continue
                self.sent.setdefault(step, {})[device] = body
                aggregator.receive(device, step, body)
            aggregator.advance()
        return aggregator

    def _next(self, device: int, step: SumStep, answer: bytes) -> bytes:
        one = self.devices[device]
        if step == SumStep.SHARES:
            return one.share(answer)
        if step == SumStep.MASKED:
            return one.mask(answer, self.vectors[device], self.shape)
        return one.sign(answer) if step == SumStep.SIGNATURE else one.reveal(answer)


def draw_vectors(count: int, shape: VectorShape, seed: int = 0) -> list[Vector]:
    generator = np.random.default_rng(seed)
    return [
        shape.reduce(generator.integers(0, 1 << 32, shape.size, np.uint32, endpoint=False))
        for _ in range(count)
    ]
