"""When admitted updates apply: the seam between what comes in and what the model makes of it.

A coordinator is told what happens, in order and with the time, and says what applies now. Everything else
(admission, journal, receipts, sockets) is the same for all of them, and none of it asks which one there is:

    offer    an update was admitted                  -> it applies now, or it is held
    arrived  a device takes part from now on
    left     it does no longer
    tick     all that came at once was offered, or `due` is over
                                                  -> what was held applies, or waits on

What is held is in memory only: a device whose update is held has no receipt, and sends it again if need be.

    asynchronous   each update at once, as a version of its own: nobody waits for anybody (asynchronous.py)
    rounds         all that were computed from the same version, together (rounds.py)
    elastic        as asynchronous: updates are differences to the model, not gradients
    buffer         as asynchronous: each is journaled and answered at once, and several make a step (descent)
    tasks          as in rounds, one of each data shard, of whichever device has it first (tasks.py)
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from edgeflock.server.descent import Gathered, Step, Where
from edgeflock.shared.protocol.frames import TaskRoundStatus
from edgeflock.shared.protocol.messages import Update


@dataclass(frozen=True, slots=True, eq=False)
class Push:
    """One update as it arrived: who sent it, when (Unix seconds), the record and its bytes.

    Sent twice, it is two pushes.
    """

    device: int
    time: float
    update: Update
    frame: bytes


class Apply(NamedTuple):
    """These updates make the next versions, one each, in this order."""

    updates: tuple[tuple[Push, Where], ...]
    """Each with the parameters that it touches."""
    change: Step | Gathered
    """What they come to."""


class Tasks(Protocol):
    """What a coordinator that says who computes what is asked beside."""

    def holds(self, device: int, shards: Sequence[str]) -> None:
        """The device has these data shards from now on, whenever it is there."""

    def hand_out(self, device: int, now: float) -> int | None:
        """Which of its shards the device is to compute next, as a position in what it holds; None: none
        now.
        """

    def standing(self) -> TaskRoundStatus:
        """How the open round stands, for whoever watches. At any time, also while updates are taken."""


class Turns(Protocol):
    """What a coordinator that lets devices take part in turn is asked beside. At any time."""

    @property
    def members(self) -> Set[int]:
        """Whose turn it is: only they are sent the model."""

    @property
    def waiting(self) -> int:
        """How many devices are there, and it is not their turn."""


class Coordinator(Protocol):
    """A way to coordinate. Times are seconds of any one clock. No I/O, no clock, no randomness."""

    @property
    def held(self) -> Mapping[int, Push]:
        """device -> its update that waits for others."""

    @property
    def tasks(self) -> Tasks | None:
        """If it says which data shard each update is of."""

    @property
    def turns(self) -> Turns | None:
        """If it says who takes part."""

    def waiting(self, push: Push) -> Push | None:
        """The held update that `push` is again, if any. Raises BadSequence if its device has to wait."""

    @property
    def gathered(self) -> Gathered | None:
        """What a step of now would be added to, if anything."""

    @property
    def due(self) -> float | None:
        """When `tick` has something to say although nothing came; None: never."""

    def offer(self, push: Push, step: Step, now: float) -> Apply | None:
        """Take an admitted update that is not `waiting`; None if it is held. Raises Refused if it cannot
        count.
        """

    def arrived(self, device: int) -> None:
        """Told again, it changes nothing."""

    def left(self, device: int) -> None:
        """What it has contributed counts. Told again, it changes nothing."""

    def give_up(self) -> list[Push]:
        """Let go of what is held, which will not apply."""

    def tick(self, now: float) -> Apply | None:
        """What applies by now of what was held."""
