"""Updates that arrive decoded: a gateway does what takes longest, and its leader looks at what came of it.

The journal has an update as its device sent it, and a replay decodes that again. Decoding is the same bits
on every machine, so that both come to one model as long as a gateway does what it is there for; of each one's
work the leader takes samples (sessions/gateways/updates.py).
"""

import numpy as np

from edgeflock.server.descent import Step
from edgeflock.server.engine.admission import admit
from edgeflock.shared.codecs import sparse
from edgeflock.shared.errors import Malformed, Refused
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.protocol.gateway import Decoded, numbers
from edgeflock.shared.protocol.messages import Update


def pays(update: Update) -> bool:
    """Whether it takes more to decode than to send decoded. An update that tells of its device is looked at
    as it came.
    """
    return update.index_mode == sparse.GRID and update.facts is None


def step_of(update: Update, layout: Layout, most_samples: int, expansion_bytes: int) -> Step | None:
    """`update` decoded, wherever its base may be; None if there is something wrong with it: who admits it
    says what comes first.
    """
    try:
        return admit(
            update,
            layout,
            oldest=0,
            version=update.base,
            samples=most_samples,
            expansion_bytes=expansion_bytes,
            fewest=0,
        )
    except Refused:
        return None


def told(device: int, ingress: int, egress: int, update: Update, step: Step, frame: bytes) -> Decoded:
    """What a gateway sends of an update."""
    assert not isinstance(step.where, slice), "it is not dense"
    return Decoded(
        device,
        ingress,
        egress,
        frame,
        update.sequence,
        update.base,
        update.index_mode,
        update.value_mode,
        update.loss,
        update.samples,
        update.task,
        step.where.astype("<i4").tobytes(),
        step.delta.astype("<f4").tobytes(),
        step.statistics.astype("<f4").tobytes(),
    )


def read(item: Decoded, layout: Layout) -> tuple[Update, Step]:
    """The update, without its streams, and what it comes to. Raises Malformed if that cannot be."""
    where = numbers(item.where, "<i4").astype(np.int64)
    delta, statistics = numbers(item.delta, "<f4"), numbers(item.statistics, "<f4")
    if where.size != delta.size or statistics.size != layout.buffers:
        raise Malformed("an update that a gateway has decoded has not as many values as places")
    if where.size and not (
        where[0] >= 0 and where[-1] < layout.parameters.size and bool((where[1:] > where[:-1]).all())
    ):
        raise Malformed("an update that a gateway has decoded is at places that there are not")
    if not (np.isfinite(delta).all() and np.isfinite(statistics).all()):
        raise Malformed("an update that a gateway has decoded holds NaN or infinity")
    update = Update(
        item.sequence,
        item.base,
        item.index_mode,
        item.value_mode,
        where.size,
        b"",
        b"",
        item.loss,
        item.samples,
        False,
        task=item.task,
    )
    return update, Step(item.base, where, delta, statistics, item.samples)


def same(theirs: tuple[Update, Step], update: Update, step: Step) -> bool:
    """Whether what a gateway made of an update is what comes of it here, bit for bit."""
    other, done = theirs
    one, two = (
        (
            *(each.sequence, each.base, each.index_mode, each.value_mode),
            *(each.count, each.samples, each.task, str(each.loss)),
        )
        for each in (other, update)
    )
    assert not isinstance(done.where, slice), "read as places"
    return (
        one == two
        and not isinstance(step.where, slice)
        and all(
            a.tobytes() == b.tobytes()
            for a, b in (
                (done.where, step.where),
                (done.delta, step.delta),
                (done.statistics, step.statistics),
            )
        )
    )
