"""The report on section 4.1: figures 4 and 5, and what the paper says of its own."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from edgeflock.papers.easgd.policies import (
    A3C,
    AGENTS,
    DEFAULT,
    EASGD,
    GAMES,
    LEARNED,
    PPO,
    WORKERS,
    Game,
    Horizon,
    part_of,
)
from edgeflock.papers.easgd.report import samples_per_second
from edgeflock.papers.reproduce import Measured, Reproduction, Results
from edgeflock.results.figures import Bars, Panel, draw, draw_bars
from edgeflock.results.outcomes import LAST
from edgeflock.shared.numbers import size

_PAPER = {
    "Acrobot": "PPO, A3C, ASP and EASGD all train well and approach the highest return.",
    "CartPole": "PPO converges fastest with respect to time; ASP does not converge and is unstable.",
}


def summarise(results: Results, options: Reproduction) -> dict[str, Any]:
    """easgd-rl.json: of each panel and method returns, where it was solved, and steps per second."""
    epochs = {agent.method.name: agent.epochs for agent in AGENTS}
    return {
        **options.about,
        "panels": {
            part_of(game, workers): {
                one.experiment.name: _summary_of(one, game, epochs[one.experiment.name])
                for one in results.get(part_of(game, workers), [])
            }
            for game in GAMES
            for workers in WORKERS
        },
    }


def _summary_of(one: Measured, game: Game, epochs: int) -> dict[str, Any]:
    runs = one.setting.outcomes
    found: dict[str, Any] = {
        "seeds": [run.end["seed"] for run in runs],
        "steps_per_second": fmean(samples_per_second(run) for run in runs) / epochs,
        "steps": fmean(run.samples for run in runs) / epochs,
        "traffic": fmean(run.rows[-1]["ingress"] + run.rows[-1]["egress"] for run in runs),
    }
    if game.solved is None:
        return found
    solved = [
        next(row for row, value in zip(run.rows, run.returns, strict=True) if value >= game.solved)
        for run in runs
        if max(run.returns) >= game.solved
    ]
    return {
        **found,
        "last": [run.returns[-1] for run in runs],
        "last_five": [fmean(run.returns[-LAST:]) for run in runs],
        "best": [max(run.returns) for run in runs],
        "solved": [{"seconds": row["seconds"], "traffic": row["ingress"] + row["egress"]} for row in solved],
    }


def report(results: Results, summary: dict[str, Any], horizon: Horizon, out: Path) -> str:
    """easgd-rl.md. Writes the figures into `out`."""
    caption = f"{summary['command']}, {summary['date']}; virtual time; {summary['machine']}"
    panels = [
        Panel(part, "seconds", "virtual time", [one.setting for one in measured])
        for game in LEARNED
        for workers in WORKERS
        if (measured := results.get(part := part_of(game, workers)))
    ]
    draw(panels, out / "easgd-rl-figure4", caption)
    draw_bars(list(_bars(summary)), out / "easgd-rl-figure5", caption)
    times = "; ".join(f"{game.name} {game.sample_ms:g} and {game.step_ms:g} ms" for game in GAMES)
    return "\n".join(
        [
            "# EASGD and ASP that learn by acting, reproduced",
            "",
            f"`{summary['command']}` on {summary['date']}: {summary['machine']}. Three emulated nodes of 5 "
            "or 10 workers; those of a node share a link of 1 Gbps. A step in the environment and a "
            f"gradient's other work take, in virtual time: {times}. Returns are means of "
            f"{GAMES[0].episodes} episodes with fixed seeds, of the likeliest actions.",
            "",
            f"The paper's runs take an hour, ours {horizon.learning:g} seconds of virtual time. In an hour "
            "15 workers take some 40 million steps, which is four hours of a core for each run. Of QBert the "
            f"throughput alone was measured, for {horizon.throughput:g} seconds. IMPALA is not here: its "
            "learner gets observations, not gradients.",
            "",
            f"Gradients are of {A3C.batch} steps, PPO's of {PPO.batch}, Edgeflock's of {DEFAULT.batch}. "
            f"EASGD exchanges after {EASGD.local_steps} gradients. PPO is synchronous and averages "
            "gradients, the paper's gathers observations. Edgeflock is our default with the loss of PPO, "
            "asynchronous. The server's learning rate falls as a cosine until the end; EASGD's devices have "
            "a constant one.",
            "",
            "## Return (figure 4)",
            "",
            "*Last* and *mean of the last five* evaluations are means over the seeds, and in brackets stands "
            "the worst seed. *Solved* is the first evaluation that reaches "
            + ", ".join(f"{game.solved:g} ({game.name})" for game in LEARNED)
            + ": seconds and bytes both ways until then, means over the seeds that reach it.",
            "",
            *(line for game in LEARNED for line in _learned(summary, game)),
            "![Return](easgd-rl-figure4.png)",
            "",
            "## Throughput (figure 5)",
            "",
            "Steps in the environment per virtual second, and bytes both ways for each step. The paper: A3C "
            "is the fastest, EASGD and ASP follow closely, PPO and IMPALA are much slower.",
            "",
            "| | " + " | ".join(agent.method.name for agent in AGENTS) + " |",
            "|---|" + "--:|" * len(AGENTS),
            *_throughput(summary),
            "",
            "![Throughput](easgd-rl-figure5.png)",
            "",
        ]
    )


def _learned(summary: dict[str, Any], game: Game) -> Iterator[str]:
    yield f"**{game.name}.** The paper: {_PAPER[game.name]}"
    yield ""
    columns = "seeds | last | mean of the last five | best | solved | after | bytes until then"
    yield f"| workers a node | method | {columns} |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|--:|"
    for workers in WORKERS:
        for name, of in summary["panels"][part_of(game, workers)].items():
            solved = of["solved"]
            after = f"{fmean(one['seconds'] for one in solved):.1f} s" if solved else "-"
            sent = size(fmean(one["traffic"] for one in solved)) if solved else "-"
            yield (
                f"| {workers} | {name} | {len(of['seeds'])} | {_mean(of['last'])} | "
                f"{_mean(of['last_five'])} | {fmean(of['best']):.0f} | "
                f"{len(solved)} of {len(of['seeds'])} | {after} | {sent} |"
            )
    yield ""


def _mean(returns: list[float]) -> str:
    return f"{fmean(returns):.0f} ({min(returns):.0f})"


def _throughput(summary: dict[str, Any]) -> Iterator[str]:
    for part, measured in summary["panels"].items():
        if measured:
            cells = [
                f"{of['steps_per_second']:,.0f}, {size(of['traffic'] / of['steps'])}" if of else "-"
                for agent in AGENTS
                for of in [measured.get(agent.method.name)]
            ]
            yield f"| {part} | {' | '.join(cells)} |"


def _bars(summary: dict[str, Any]) -> Iterator[Bars]:
    measured = summary["panels"]
    shown = [workers for workers in WORKERS if any(measured[part_of(game, workers)] for game in GAMES)]
    for game in GAMES:
        heights = {
            agent.method.name: [
                measured[part_of(game, workers)].get(agent.method.name, {}).get("steps_per_second", 0.0)
                for workers in shown
            ]
            for agent in AGENTS
        }
        yield Bars(game.name, "steps per second", [f"{workers} workers a node" for workers in shown], heights)
