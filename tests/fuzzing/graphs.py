"""Graphs that a hostile server might serve: exported ones, of which something has been changed."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from edgeflock.shared.errors import BadGraph
from edgeflock.shared.graphs.footprint import footprint
from edgeflock.shared.graphs.reading import read
from edgeflock.shared.graphs.writing import write
from tests.fuzzing.protobuf import mutated, put_together, taken_apart, with_damage

GRAPHS = Path(__file__).parents[1] / "data" / "graphs"
CORPUS = Path(__file__).parents[1] / "data" / "corpus" / "graphs"


def damaged_graphs(seed: int) -> Iterator[bytes]:
    """One after the other, without an end."""
    random = Random(seed)
    whole = sorted((path.read_bytes() for path in GRAPHS.glob("*.onnx")), key=len)
    while True:
        # Mostly the smallest: there are the same fields in it.
        graph = random.choice(whole) if random.random() < 0.05 else whole[0]
        if random.random() < 0.2:
            yield with_damage(graph, random)
            continue
        pieces = taken_apart(graph)
        assert pieces is not None
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            mutated(pieces, random)
        yield put_together(pieces)


def survived(octets: bytes) -> bool:
    """Whether the graph is taken. Raises whatever the reader should not: anything but BadGraph.

    A graph that is taken is the same once it is written and read again, and can be weighed or refused.
    """
    try:
        graph = read(octets)
    except BadGraph:
        return False
    written = write(graph)
    again = read(written)
    assert again == graph
    assert write(again) == written
    shapes = {port.name: tuple(2 if isinstance(d, str) else d for d in port.shape) for port in graph.inputs}
    try:
        footprint(graph, shapes)
    except BadGraph:
        return False
    return True
