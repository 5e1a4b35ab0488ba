"""The table of the lines that have been run."""

from collections.abc import Sequence
from typing import Any

LOCAL_STEPS = 5
"""Steps of a device in a round of FedAvg, for the comparison of bytes."""


def dense(adapters: int, gradients: int, steps: int = 1) -> int:
    """Bytes of FedAvg: the adapters as float32, down and up for each update of so many gradients."""
    return 8 * adapters * (gradients // steps)


def report(lines: Sequence[dict[str, Any]]) -> str:
    """Markdown: accuracy and loss of each arm; then what the fleet has sent against dense rounds."""
    rows = ["| model | gradients | who | accuracy, last three | last | loss | perplexity | up | down |"]
    rows.append("|---|--:|---|--:|--:|--:|--:|--:|--:|")
    notes: list[str] = []
    for line in sorted(lines, key=lambda line: (line["cell"]["size"], line["cell"]["arm"])):
        cell, figures = line["cell"], line["figures"]
        if cell["arm"] == "memory":
            peak, idle, base = (f"{figures[key] / 1e6:.0f} MB" for key in ("peak", "idle", "base"))
            notes.append(
                f"- {cell['size']}, a device with {' '.join(cell['settings'])}: {peak} at most, where one "
                f"with a tiny model takes {idle}; the base is {base}"
            )
            continue
        sent = [f"{figures[key] / 1e6:.2f} MB" if key in figures else "-" for key in ("ingress", "egress")]
        rows.append(
            f"| {cell['size']} | {figures['curve'][-1]['gradients']:,} | {_name(cell)} "
            f"| {100 * figures['mean_accuracy']:.2f}% | {100 * figures['accuracy']:.2f}% "
            f"| {figures['mean_loss']:.3f} | {2.718281828 ** figures['mean_loss']:.1f} | {' | '.join(sent)} |"
        )
        if cell["arm"] == "fleet":
            notes.append(f"- {cell['size']}, {_name(cell)}: {_traffic(figures)}")
    return "\n".join([*rows, "", *notes])


def _name(cell: dict[str, Any]) -> str:
    seed = f", seed {cell['seed']}" if cell.get("seed") else ""
    if cell["arm"] == "central":
        return f"one machine, AdamW, rate {', '.join(cell['settings'])}{seed}"
    return f"eight devices, {' '.join(cell['settings']) or 'defaults'}{seed}"


def _traffic(figures: dict[str, Any]) -> str:
    both, count = figures["ingress"] + figures["egress"], figures["curve"][-1]["gradients"]
    every, rounds = dense(figures["adapters"], count), dense(figures["adapters"], count, LOCAL_STEPS)
    return (
        f"{both / 1e6:.2f} MB of adapters both ways. Dense adapters for each gradient are {every / 1e6:.1f} "
        f"MB, {every / both:.0f} times that; those of FedAvg with {LOCAL_STEPS} local steps "
        f"{rounds / 1e6:.1f} MB, {rounds / both:.0f} times. Each of eight devices downloads the base once, "
        f"{figures['base'] / 1e6:.1f} MB"
    )
