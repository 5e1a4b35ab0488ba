"""What a journal acknowledges a second, in SQLite, in PostgreSQL, and with a synchronous standby of that.

    python -m benchmarks.logs [--seconds 2] [--repeats 3] [--bytes 140] [--only sqlite]

Rows of one size go through `Journal` in groups, each durable before the next one. All on one disk; the kinds
take turns. Prints JSON: rows a second, the median of the repeats, by kind and by updates a group.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from benchmarks.updates import LAYOUT
from edgeflock.server.journal import Journal
from edgeflock.server.ledger.claim import open_journal
from tests.postgres import cluster, standby

GROUPS = (1, 16, 64, 256)


def rows_a_second(journal: Journal, group: int, size: int, seconds: float) -> float:
    """Acknowledged, in groups of so many."""
    frame, version, began = os.urandom(size), journal.version, time.perf_counter()
    first = version
    while (now := time.perf_counter()) < began + seconds:
        for _ in range(group):
            version += 1
            journal.add_update(version, 1, version, 1.0, 0.5, 10, frame)
        journal.commit()
    return (version - first) / (now - began)


@contextmanager
def journals(kinds: tuple[str, ...], place: Path) -> Iterator[dict[str, Journal]]:
    """One of each kind, of a run with a device."""
    with ExitStack() as opened:
        found = {}
        for kind in kinds:
            url = f"sqlite:{place / 'journal.sqlite'}"
            if kind != "sqlite":
                primary = opened.enter_context(cluster())
                if kind == "standby":
                    opened.enter_context(standby(primary))
                url = primary.fresh()
            journal = found[kind] = open_journal(url, 60.0)
            opened.callback(journal.abandon)
            journal.begin_run("run", "package:Model", LAYOUT, np.zeros(LAYOUT.size, np.float32), 1.0)
            journal.device_id("one")
        yield found


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=140)
    parser.add_argument("--only", choices=("sqlite",), help="without PostgreSQL")
    asked = parser.parse_args()
    kinds = (asked.only,) if asked.only else ("sqlite", "postgresql", "standby")
    with (
        tempfile.TemporaryDirectory(prefix="edgeflock-logs-") as place,
        journals(kinds, Path(place)) as opened,
    ):
        rates: dict[str, dict[int, list[float]]] = {kind: {group: [] for group in GROUPS} for kind in kinds}
        for _ in range(asked.repeats):
            for group in GROUPS:
                for kind in kinds:
                    rates[kind][group].append(rows_a_second(opened[kind], group, asked.bytes, asked.seconds))
    reported = {
        kind: {n: round(statistics.median(many)) for n, many in by.items()} for kind, by in rates.items()
    }
    print(json.dumps(reported))


if __name__ == "__main__":
    main()
