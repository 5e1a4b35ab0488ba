"""The output of a quickstart: its progress and its result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from edgeflock.shared.numbers import percent, size, times


@dataclass(frozen=True, slots=True)
class QuickstartResult:
    """The result. Bytes are counted at the server's sockets, over the devices' connections."""

    accuracy: float | None
    """The last evaluation's accuracy. None for a regression loss, or without held-out data."""
    last_five_accuracy: float | None
    """The mean accuracy of the last five evaluations."""
    best_accuracy: float | None
    """The highest accuracy of all evaluations."""
    updates: int
    clients: int
    ingress_bytes: int
    egress_bytes: int
    dense_bytes: int
    """Bytes of as many updates as float32, in one direction, without framing."""
    reduction: float | None
    """dense_bytes / ingress_bytes."""
    reduction_both_ways: float | None
    """2 dense_bytes / (ingress + egress). A dense update has a dense model as its answer."""
    seconds: float
    model_path: str


@contextmanager
def progress_bar(narration: Console, total: int) -> Iterator[Callable[[Any], None]]:
    """Show a bar of `total` updates. Yields a function that shows a status of /v1/status on it."""
    columns = (  # 80 characters at most
        BarColumn(10),
        MofNCompleteColumn(),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("{task.fields[speed]} updates/s"),
        TextColumn("traffic {task.fields[traffic]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=narration, transient=False) as progress:
        task = progress.add_task("", total=total, accuracy="-", speed="-", traffic="-")

        def show(status: Any) -> None:
            speed = progress.tasks[0].speed
            progress.update(
                task,
                completed=status["version"],
                accuracy=percent(accuracy_of(status)),
                speed=f"{speed:,.0f}" if speed else "-",
                traffic=size(status["device_ingress"] + status["device_egress"]),  # both ways
            )

        yield show


def show_result(result: QuickstartResult) -> None:
    """Print `result` as a table."""
    table = Table(show_header=False, box=None)
    for name, value in (
        ("accuracy", _accuracy_text(result)),
        ("updates", f"{result.updates:,} from {result.clients} client processes"),
        ("ingress", f"{size(result.ingress_bytes)}, framing included"),
        ("egress", f"{size(result.egress_bytes)}, first models included"),
        ("dense float32", f"{size(result.dense_bytes)} in each direction"),
        ("reduction", f"{times(result.reduction)} up, {times(result.reduction_both_ways)} both ways"),
        ("seconds", f"{result.seconds:.1f}"),
        ("model", result.model_path),
    ):
        table.add_row(name, value)
    Console().print(table)


def _accuracy_text(result: QuickstartResult) -> str:
    if result.accuracy is None:
        return percent(None)
    last_five, best = percent(result.last_five_accuracy), percent(result.best_accuracy)
    return f"{percent(result.accuracy)} at the end, {last_five} mean of the last five, {best} best"


def accuracy_of(status: Any) -> float | None:
    """Return the accuracy of the last evaluation in a status."""
    accuracy: float | None = (status["evaluation"] or {}).get("accuracy")
    return accuracy
