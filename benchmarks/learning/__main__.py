"""The commands of `python -m benchmarks.learning`: list, run and report."""

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a worker is one thread; before numpy is there
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks.learning import cells, runner
from benchmarks.learning.arms import FAMILIES, PRODUCT, VARIANTS, parsed
from benchmarks.learning.cells import DEVICES, SEEDS, Cell, Results
from benchmarks.learning.play import play
from benchmarks.learning.shares import SPLITS
from benchmarks.learning.tasks import TASKS


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.learning", description="The bench for learning.")
    found.add_argument("--results", type=Path, default=Path("docs/results/learning.jsonl"))
    kinds = found.add_subparsers(dest="kind", required=True)
    which = argparse.ArgumentParser(add_help=False)
    which.add_argument(
        "--task", action="append", default=[], choices=list(TASKS), help="may be repeated, as all"
    )
    which.add_argument("--n", action="append", default=[], type=int, choices=DEVICES)
    which.add_argument("--data", action="append", default=[], choices=SPLITS)
    which.add_argument("--arm", action="append", default=[], metavar="ARM", help="a family or a whole name")
    which.add_argument("--seed", action="append", default=[], type=int, choices=SEEDS)
    kinds.add_parser("list", parents=[which], help="the cells in their order, and what has become of them")
    run = kinds.add_parser("run", parents=[which], help="run the cells that have not been run")
    run.add_argument("--limit-minutes", type=float, default=0.0, help="then stop; 0: never")
    run.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes, of one thread each")
    run.add_argument("--failed", action="store_true", help="also run cells that failed")
    run.add_argument(
        "--anew", action="store_true", help="also run cells of the product whose code has changed since"
    )
    report = kinds.add_parser("report", help="write learning.md and the figure beside the results")
    report.add_argument("--out", type=Path, help="the folder; default: that of the results")
    return found


def planned(asked: argparse.Namespace) -> Callable[[Results], Iterator[Cell]]:
    """The plan of the cells that are asked for."""
    matches = cells.matching(asked.task, asked.n, asked.data, asked.arm, asked.seed)
    known = {PRODUCT, *FAMILIES, *(f"{PRODUCT} {name}" for name in VARIANTS)}
    extra = [arm for arm in asked.arm if arm not in known]

    def plan(results: Results) -> Iterator[Cell]:
        return filter(matches, cells.plan(results, extra))

    return plan


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    reader = parser()
    asked = reader.parse_args(arguments)
    if asked.kind == "report":
        from benchmarks.learning.report import write

        write(asked.results, asked.out or asked.results.parent)
        return
    try:
        for arm in asked.arm:
            if arm not in FAMILIES:
                parsed(arm)
    except ValueError as error:
        reader.error(f"--arm: {error}")
    plan = planned(asked)
    if asked.kind == "list":
        results = cells.read(asked.results)
        for cell in plan(results):
            record = results.get(cell)
            print(f"{cell}: {'not run' if record is None else runner.shown(record)}")
        return
    reasons = [runner.failed] * asked.failed + [runner.outdated] * asked.anew
    command = shlex.join(["python", "-m", "benchmarks.learning", *arguments])
    notes = runner.notes(command)
    runner.run(
        *(asked.results, plan, play, asked.workers, notes, asked.limit_minutes),
        again=lambda cell, record: any(reason(cell, record) for reason in reasons),
        tell=lambda text: print(text, flush=True),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
