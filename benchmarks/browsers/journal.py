"""What the journal of a run has of its devices and of the updates under way at a death."""

import base64
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

WINDOW = 256
"""coordination.window, by default."""


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{folder / 'run' / 'journal.sqlite'}?mode=ro", uri=True) as journal:
        return journal.execute(query).fetchall()


def evaluations(folder: Path) -> list[tuple[Any, ...]]:
    return rows(folder, "SELECT version, accuracy FROM evaluations ORDER BY version")


def audited(folder: Path, deaths: list[dict[str, Any]], receipts: int) -> dict[str, Any]:
    """What the journal has of every device, and of the updates that were under way at a death."""
    updates: dict[str, dict[int, tuple[int, bytes]]] = {}
    query = "SELECT name, sequence, version, frame FROM updates JOIN devices ON devices.id = device"
    total = 0
    for name, sequence, version, frame in rows(folder, query):
        updates.setdefault(name, {})[sequence] = version, frame
        total += 1
    whole = [name for name, own in updates.items() if sorted(own) == list(range(1, len(own) + 1))]
    repeated = sum(len(own) - len({frame for _, frame in own.values()}) for own in updates.values())
    fates = []
    for death in deaths:
        version, frame = updates[death["name"]].get(death["sequence"], (0, b""))
        is_late = version - death["base"] > WINDOW  # it was refused, and the device sent its entries later
        fates.append("there" if base64.b64decode(death["values"]) in frame else "late" if is_late else "lost")
    of_tabs = sum(len(own) for name, own in updates.items() if name.startswith("browser-"))
    return {
        "updates": total,
        "devices": len(updates),
        "devices_with_all_numbers_once": len(whole),
        "updates_with_the_bytes_of_another": repeated,
        "under_way_at_a_death": Counter(fates),
        "updates_of_tabs": of_tabs,
        "receipts_that_tabs_saw": receipts,
    }
