"""Two runs side by side: settings that differ, and their evaluations. It reads the runs' journals."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from edgeflock.server.journal import Journal
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.numbers import loss, percent, size
from edgeflock.shared.protocol.frames import Evaluation

_ROWS = 12
"""The most evaluations that are shown of each run."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run's journal says of it."""

    directory: str
    settings: Mapping[str, object]
    """How updates count now, by name, with the model and its size."""
    evaluations: list[Evaluation]


def summarize(directory: Path) -> RunSummary:
    """Read the journal of a run. Its server may be running. Raises ConfigError without a journal there."""
    file = directory / "journal.sqlite"
    if not file.is_file():
        raise ConfigError(f"{directory} holds no run: it has no {file.name}; name a server.directory")
    with closing(Journal(file)) as journal:
        run, regimes = journal.run(), journal.regimes()
        if run is None or not regimes:
            raise ConfigError(f"{directory} holds a run that has not begun")
        counting = asdict(regimes[-1].regime)
        method = counting.pop("method")
        del method["noise_key"]  # who knows it subtracts the noise of a private run
        settings = {"model": run.model, "parameters": run.layout.parameters.size, **counting}
        settings |= {f"optimizer.{name}": value for name, value in method.items()}
        return RunSummary(str(directory), settings, journal.evaluations())


def differences(first: RunSummary, second: RunSummary) -> dict[str, tuple[object, object]]:
    """Return name -> (value of the first run, value of the second) of what differs."""
    names = dict.fromkeys([*first.settings, *second.settings])
    pairs = {name: (first.settings.get(name), second.settings.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def show_comparison(first: Path, second: Path, *, as_json: bool) -> None:
    """Print the comparison of two runs' directories. Raises ConfigError."""
    runs = summarize(first), summarize(second)
    if as_json:
        print(json.dumps(_document(*runs)))
        return
    console = Console()
    console.print(f"Left: {first}. Right: {second}.", soft_wrap=True)
    table = Table("setting", "left", "right", box=None)
    for name, pair in differences(*runs).items():
        table.add_row(name, *("-" if value is None else str(value) for value in pair))
    if not table.row_count:
        console.print("The journals name no setting that differs.")
    else:
        console.print(table)
    curves = Table(box=None)
    for column in ("version", "accuracy", "loss", "both ways") * 2:
        curves.add_column(column, justify="right")
    for row in _side_by_side(*(run.evaluations for run in runs)):
        curves.add_row(*row)
    console.print(curves)


def _document(*runs: RunSummary) -> dict[str, Any]:
    return {
        "settings": differences(*runs),
        "runs": [
            {"directory": run.directory, "evaluations": [one._asdict() for one in run.evaluations]}
            for run in runs
        ],
    }


def _side_by_side(first: list[Evaluation], second: list[Evaluation]) -> Iterator[list[str]]:
    """Yield rows of both runs: evaluations at equal parts of each run, the last ones included."""
    count = min(_ROWS, max(len(first), len(second)))
    for row in range(count):
        cells = []
        for evaluations in (first, second):
            place = round((row + 1) * len(evaluations) / count) - 1
            if not evaluations or place < 0:
                cells += [""] * 4
                continue
            one = evaluations[place]
            cells += [f"{one.version:,}", percent(one.accuracy), loss(one.loss, 4)]
            cells.append(size(one.ingress + one.egress))
        yield cells
