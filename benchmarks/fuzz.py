"""Any number of hostile answers for a device: graphs, and sessions whose records are not as they were.

    python -m benchmarks.fuzz --frames 1000000 --seed 1

Ends with status 1 at the first that ends a device with anything but an error of ours, and leaves it in
edgeflock-fuzz.onnx or edgeflock-fuzz.msgpack: for tests/data/corpus.
"""

import argparse
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import msgpack

from tests.fuzzing import graphs, records

_AT_ONCE = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frames", type=int, default=100_000, help="graphs and sessions, in all")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began, left = time.monotonic(), arguments.frames
    ended: Counter[str] = Counter()
    served, sessions = graphs.damaged_graphs(arguments.seed), records.hostile_sessions(arguments.seed)
    while left > 0:
        ended += _taken(list(islice(served, _AT_ONCE)))
        ended += _ended(list(islice(sessions, _AT_ONCE)))
        left -= 2 * _AT_ONCE
    seconds = time.monotonic() - began
    print(f"{arguments.frames - left} in {seconds:.0f} s:", dict(ended.most_common()))


def _taken(served: list[bytes]) -> Counter[str]:
    taken: Counter[str] = Counter()
    for graph in served:
        try:
            taken["graph taken" if graphs.survived(graph) else "graph refused"] += 1
        except Exception:
            _leave("edgeflock-fuzz.onnx", graph)
            raise
    return taken


def _ended(sessions: list[records.Session]) -> Counter[str]:
    try:
        return records.outcomes(sessions)
    except Exception:
        for session in sessions:  # which of them it was
            try:
                records.outcomes([session])
            except Exception:
                _leave("edgeflock-fuzz.msgpack", msgpack.packb(list(session)))
                raise
        raise


def _leave(name: str, octets: bytes) -> None:
    Path(name).write_bytes(octets)
    print(f"left in {name}", file=sys.stderr)


if __name__ == "__main__":
    main()
