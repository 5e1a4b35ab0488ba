"""One policy for all, each device alone, and the fleet's: python compare.py [FIGURE]. Takes some minutes.

A fleet of twelve devices of four kinds learns one policy. Beside it each kind learns alone, from as many
steps as its devices take in the fleet; and one kind's policy is tried on the others.
"""

import os
import sys
from pathlib import Path
from statistics import fmean

import edgeflock as ef

KINDS = {
    "usual": "gym:poles:make?",
    "short": "gym:poles:make?length=0.2&",
    "long": "gym:poles:make?length=1.5&",
    "jupiter": "gym:poles:make?gravity=24.8&",
}
UPDATES, BATCH, EACH = 9600, 64, 3
"""Of the fleet; steps of an update; devices of a kind."""


def learned(kinds: list[str], updates: int, judged_on: str, seed: int) -> float:
    """The return on `judged_on` of what devices of these kinds have learned.

    It is the mean of the last three evaluations. They change nothing of a run: the same seed learns the same.
    """
    fleet = ef.Fleet(
        ef.Model("edgeflock.client.zoo:ActorCritic", loss="ppo"),
        data="gym:poles:make?envs=4",
        evaluate=f"{KINDS[judged_on]}episodes=100",
        devices=EACH * len(kinds),
        classes={kind: {"step_ms": 30, "data": f"{KINDS[kind]}envs=4"} for kind in kinds},
        batch=BATCH,
        updates=updates,
        evaluate_every=updates // 10,
        optimizer={"schedule": "cosine"},
    )
    return fmean(one.metrics["return"] or 0 for one in fleet.run(seed).evaluations[-3:])


COLUMNS = "learned alone", "learned on usual poles", "learned by the fleet"


def draw(returns: dict[str, list[float]], path: Path) -> None:
    """Bars of each kind's returns, as path.png and path.svg. Needs the extra `plot`."""
    from edgeflock.results.bars import Bars, draw_bars

    heights = {name: [row[place] for row in returns.values()] for place, name in enumerate(COLUMNS)}
    bars = Bars("Poles and planets that differ", "mean return of 100 episodes", list(returns), heights)
    draw_bars([bars], path, "Twelve emulated devices, three of a kind. Means over the seeds.")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    kinds, seeds = list(KINDS), range(int(os.environ.get("SEEDS", "3")))
    means: dict[str, list[float]] = {}
    print(f"| acts on | {' | '.join(COLUMNS)} |\n|---|--:|--:|--:|")
    for kind in kinds:
        alone, usual, fleet = (
            [learned(of, UPDATES * len(of) // len(kinds), kind, seed) for seed in seeds]
            for of in ([kind], ["usual"], kinds)
        )
        cells = (f"{fmean(some):.0f} ({min(some):.0f})" for some in (alone, usual, fleet))
        print(f"| {kind} | {' | '.join(cells)} |", flush=True)
        means[kind] = [fmean(some) for some in (alone, usual, fleet)]
    if len(sys.argv) > 1:
        draw(means, Path(sys.argv[1]))
