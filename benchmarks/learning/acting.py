"""python -m benchmarks.learning.acting run | report: fleets that learn by acting, beside what others ship.

All arms take as many steps in the environment. Fleets are emulated: 15 devices, a step of 10 ms and 0.1 ms
for each sample. Stable-Baselines3 runs on one machine, with the settings that rl-zoo publishes for the task.
"""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a worker is one thread; before numpy is there
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter

from benchmarks.learning import cells, runner
from benchmarks.learning.cells import Cell, Results
from edgeflock.devices.emulation.config import FleetFile
from edgeflock.devices.emulation.fleet import prepare, run_fleet
from edgeflock.results.figures import COLOURS
from edgeflock.server.hosting.choices import CHOICES
from edgeflock.server.monitoring.listeners import Callbacks
from edgeflock.shared.environments import Constants
from edgeflock.shared.numbers import size

DEVICES = 15
EPISODES = 100
EVALUATIONS = 20
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Task:
    """An environment, and when it counts as solved."""

    environment: str
    observations: int
    actions: int
    solved: float
    """The mean return of 100 episodes."""
    steps: int
    """That each arm takes, on all devices together."""
    ppo: str = "ppo"
    """The loss of arms that learn by PPO."""
    policy: str = "ActorCritic(observations={observations}, actions={actions})"
    """Of edgeflock.client.zoo."""
    trains_on: str = ""
    """The environment of devices, if it is not the one that is evaluated."""
    episodes: int = EPISODES
    """Of an evaluation."""
    pictures: bool = False
    """Whether these are what is observed."""

    @property
    def module(self) -> str:
        """The policy's import string."""
        policy = self.policy.format(observations=self.observations, actions=self.actions)
        return f"edgeflock.client.zoo:{policy}"


TASKS = {
    "CartPole": Task("CartPole-v1", 4, 2, 475, 200_000),
    "Acrobot": Task("Acrobot-v1", 6, 3, -100, 400_000),
    "LunarLander": Task("LunarLander-v3", 8, 4, 200, 500_000, "ppo(discount=0.999, gae=0.98)"),
    "QBert": Task(
        "ALE/Qbert-v5?repeat_action_probability=0.0&sampled",
        4 * 84 * 84,
        6,
        3882,
        400_000,
        "ppo(clip=0.1)",
        policy="PixelActorCritic(actions={actions})",
        trains_on="benchmarks.learning.games:qbert",
        episodes=10,
        pictures=True,
    ),
}

_DENSE: dict[str, object] = {"compression.select": 1.0, "compression.values": "f32"}
_FALLING: dict[str, object] = {"optimizer.schedule": "cosine"}
_A3C: dict[str, object] = {
    **_DENSE,
    "coordination.rule": "none",
    "coordination.average": 0.0,
    "downlink.mode": "exact",
    "optimizer.kind": "adam",
}
_RETURNS = "a2c(gae=1.0, normalize=True)"
"""Returns of all the steps of a gradient, as A3C has them."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A fleet's settings, or an algorithm of Stable-Baselines3."""

    settings: dict[str, object]
    batch: int = 64
    """Steps of an update."""
    envs: int = 4
    """In which a device acts at a time."""
    local_steps: int = 1
    loss: str = "a2c"
    """Or "ppo", with the task's constants."""
    algorithm: str = ""
    pictures: bool = False
    """Whether it learns the tasks that observe them, or those that do not."""

    def learns(self, task: Task) -> str:
        """The loss and its constants."""
        return task.ppo if self.loss == "ppo" else self.loss

    def updates(self, task: Task) -> int:
        """How many there are in the task's steps."""
        return int(task.steps / self.steps(task))

    def steps(self, task: Task) -> float:
        """In the environment, for each update."""
        return self.batch * self.local_steps / Constants.from_loss(self.learns(task)).epochs


ARMS = {
    "Edgeflock, PPO": Arm(_FALLING, loss="ppo"),
    "Edgeflock, PPO, 256 steps an update": Arm(
        {**_FALLING, "compression.select": 0.01}, batch=256, envs=8, loss="ppo", pictures=True
    ),
    "Edgeflock, A2C": Arm(_FALLING, envs=1),
    "Edgeflock, PPO, few bytes": Arm(
        {
            **_FALLING,
            "compression.select": 0.02,
            "coordination.learning_rate": 0.04,
            "local.optimizer": "adafactor",
        },
        batch=512,
        loss="ppo",
    ),
    "EASGD": Arm(
        {
            **_DENSE,
            "coordination.mode": "elastic",
            "coordination.moving_rate": 0.06,
            "coordination.chunk": 0,
            "local.optimizer": "adafactor",
            "local.rate": 0.02,
        },
        batch=16,
        local_steps=10,
        loss=_RETURNS,
    ),
    "dense A3C, 16 steps an update": Arm(
        {**_A3C, "coordination.learning_rate": 0.001}, batch=16, loss=_RETURNS
    ),
    "dense A3C, 256 steps an update": Arm(
        {**_A3C, "coordination.learning_rate": 0.002}, batch=256, envs=16, loss=_RETURNS
    ),
    "dense A3C, 5 steps an update": Arm(
        {**_A3C, "coordination.learning_rate": 0.0003}, batch=5, envs=1, loss=_RETURNS
    ),
    "SB3 A2C, rl-zoo": Arm({}, algorithm="A2C"),
    "SB3 PPO, rl-zoo": Arm({}, algorithm="PPO"),
}


def plan(names: list[str], arms: list[str], results: Results) -> Iterator[Cell]:
    """All cells of the tasks and arms that are named, or of all; seed by seed."""
    for seed in SEEDS:
        for task, its in TASKS.items():
            for arm, of in ARMS.items():
                asked = (not names or task in names) and (not arms or arm in arms)
                if asked and of.pictures == its.pictures:
                    yield Cell(task, 1 if of.algorithm else DEVICES, "acting", arm, seed)


def played(cell: Cell) -> dict[str, Any]:
    """The figures of a cell."""
    began = time.process_time()
    task, arm = TASKS[cell.task], ARMS[cell.arm]
    rows = (
        _stable_baselines(task, arm.algorithm, cell.seed) if arm.algorithm else _fleet(task, arm, cell.seed)
    )
    solved = next((row for row in rows if row["return"] >= task.solved), None)
    return {
        "accuracy": rows[-1]["return"],
        "mean_of_last": fmean(row["return"] for row in rows[-3:]),
        "best": max(row["return"] for row in rows),
        "solved": solved,
        "ingress": rows[-1].get("ingress", 0),
        "egress": rows[-1].get("egress", 0),
        "curve": rows,
        "shown": " ".join(f"{row['return']:.0f}" for row in rows),
        "cpu_s": round(time.process_time() - began, 2),
    }


def fleet_file(task: Task, arm: Arm) -> FleetFile:
    """The settings of a fleet."""
    updates, more = arm.updates(task), "&" if "?" in task.environment else "?"
    sections: dict[str, dict[str, object]] = {
        "local": {"batch": arm.batch, "steps": arm.local_steps},
        "end": {"updates": updates},
        "journal": {"keep_updates": False},
        "model": {
            "module": task.module,
            "loss": arm.learns(task),
            "data": f"gym:{task.environment}{more}episodes={task.episodes}",
        },
        "fleet": {
            "devices": DEVICES,
            "data": f"gym:{task.trains_on or task.environment}?envs={arm.envs}",
            "evaluate_every": max(1, updates // EVALUATIONS),
        },
        "devices": {"one": {"step_ms": 10, "sample_ms": 0.1, "timing": "exponential"}},
    }
    for path, value in arm.settings.items():
        section, _, key = path.partition(".")
        sections.setdefault(section, {})[key] = value
    return FleetFile.model_validate(sections, context=CHOICES)


def _fleet(task: Task, arm: Arm, seed: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    steps = arm.steps(task)

    def evaluated(one: Any) -> None:
        rows.append(
            {
                "steps": int(one.version * steps),
                "updates": one.version,
                "seconds": round(one.time, 3),
                "return": one.metrics["return"],
                "ingress": one.ingress,
                "egress": one.egress,
            }
        )

    run_fleet(prepare(fleet_file(task, arm)), seed, Callbacks(on_evaluated=evaluated))
    return rows


def _stable_baselines(task: Task, algorithm: str, seed: int) -> list[dict[str, Any]]:
    """rl-zoo3's hyperparameters of the task: hyperparams/a2c.yml and ppo.yml."""
    import torch
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize

    torch.set_num_threads(1)
    normalized = task.environment.startswith("Acrobot")
    count = 8 if task.environment.startswith("CartPole") or algorithm == "A2C" else 16
    count = 16 if normalized else count
    envs: Any = make_vec_env(task.environment, count, seed=seed)
    envs = VecNormalize(envs) if normalized else envs
    settings: dict[tuple[str, str], dict[str, Any]] = {
        ("A2C", "CartPole-v1"): {"ent_coef": 0.0},
        ("A2C", "Acrobot-v1"): {"ent_coef": 0.0},
        ("A2C", "LunarLander-v3"): {
            "gamma": 0.995, "n_steps": 5, "ent_coef": 1e-5, "learning_rate": lambda left: left * 0.00083,
        },
        ("PPO", "CartPole-v1"): {
            "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": lambda left: left * 0.001, "clip_range": lambda left: left * 0.2,
        },
        ("PPO", "Acrobot-v1"): {"n_steps": 256, "gae_lambda": 0.94, "n_epochs": 4, "ent_coef": 0.0},
        ("PPO", "LunarLander-v3"): {
            "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
            "ent_coef": 0.01,
        },
    }  # fmt: skip
    kind: Any = {"A2C": A2C, "PPO": PPO}[algorithm]
    model = kind("MlpPolicy", envs, seed=seed, **settings[algorithm, task.environment])
    rows: list[dict[str, Any]] = []

    def evaluate(_locals: dict[str, Any], _globals: dict[str, Any]) -> bool:
        """Evaluates as a fleet is evaluated."""
        if model.num_timesteps >= (len(rows) + 1) * task.steps // EVALUATIONS:
            judged: Any = make_vec_env(task.environment, 20, seed=10_000)
            if normalized:
                judged = VecNormalize(judged, training=False, norm_reward=False)
                judged.obs_rms = envs.obs_rms
            mean, _ = evaluate_policy(model, judged, EPISODES, deterministic=True, warn=False)
            rows.append({"steps": model.num_timesteps, "return": float(np.mean(mean))})
        return True

    model.learn(task.steps, callback=evaluate)
    return rows


def markdown(results: Results) -> str:
    """acting.md."""
    lines = [
        "# Learning by acting",
        "",
        "<!-- Generated by `python -m benchmarks.learning.acting report`. -->",
        "",
        f"{DEVICES} emulated devices with 4 environments each. Dense A3C of 256 steps has 16; dense A3C of 5 "
        "steps and Edgeflock's A2C have one. All arms take as many steps; an update of Edgeflock's is of 64. "
        "With few bytes it is of 512, the rate is 0.04 for 0.01, and 2% of a gradient is sent. "
        "With PPO a device takes 512 steps, and learns from each four times. QBert has 8 environments "
        "a device, updates of 256 steps and 1% of a gradient. "
        f"Each of {EVALUATIONS} evaluations is the mean return of {EPISODES} episodes, of the likeliest "
        f"actions; of QBert of {TASKS['QBert'].episodes} episodes, of actions that are drawn. "
        "*Last* is the last evaluation, *last three* the mean of the last three; both are "
        "means over the seeds, and in brackets stands the worst seed. *Solved* is the first evaluation that "
        "reaches the task's threshold: the mean over the seeds that reach it.",
        "",
        cells.provenance(results),
        "- Stable-Baselines3 runs on one machine with rl-zoo's settings; nothing is sent. Acrobot's "
        "observations and rewards are normalized there, as rl-zoo has it.",
    ]
    for name, task in TASKS.items():
        rows = list(_rows(name, task, results))
        if rows:
            lines += [
                "",
                f"## {task.environment}, {task.steps:,} steps, solved at {task.solved:g}",
                "",
                "| arm | seeds | last | last three | solved | steps until then | bytes both ways until then "
                "| all bytes |",
                "|---|--:|--:|--:|--:|--:|--:|--:|",
                *rows,
            ]
    return "\n".join(lines) + "\n"


def _rows(name: str, task: Task, results: Results) -> Iterator[str]:
    for arm in ARMS:
        runs = [
            record["figures"]
            for cell, record in sorted(results.items(), key=lambda item: item[0].seed)
            if (cell.task, cell.arm) == (name, arm) and "figures" in record
        ]
        if not runs:
            continue
        last, three = ([run[key] for run in runs] for key in ("accuracy", "mean_of_last"))
        solved = [run["solved"] for run in runs if run["solved"] is not None]
        steps = f"{fmean(one['steps'] for one in solved):,.0f}" if solved else "-"
        sent = [one["ingress"] + one["egress"] for one in solved if "ingress" in one]
        whole = fmean(run["ingress"] + run["egress"] for run in runs)
        until, all_of_it = size(fmean(sent)) if sent else "-", size(whole) if whole else "-"
        yield (
            f"| {arm} | {len(runs)} | {fmean(last):.1f} ({min(last):.1f}) "
            f"| {fmean(three):.1f} ({min(three):.1f}) "
            f"| {len(solved)} of {len(runs)} | {steps} | {until} | {all_of_it} |"
        )


def figure(results: Results, path: Path) -> None:
    """Return against steps, a panel for each task: means as lines, lowest to highest seed as bands."""
    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "edgeflock", "font.size": 9})
    shown = [name for name in TASKS if any(cell.task == name for cell in results)]
    drawing, grid = pyplot.subplots(1, len(shown), figsize=(5.0 * len(shown), 4.0), squeeze=False)
    for axes, name in zip(grid[0], shown, strict=True):
        for colour, arm in zip(
            cycle((*COLOURS, "#882255", "#117733", "#999933", "#88CCEE", "#661100", "#AA4499")),
            ARMS,
            strict=False,
        ):
            curves = [
                record["figures"]["curve"]
                for cell, record in results.items()
                if (cell.task, cell.arm) == (name, arm) and "figures" in record
            ]
            if not curves:
                continue
            columns = list(zip(*curves, strict=False))
            steps = [fmean(row["steps"] for row in rows) for rows in columns]
            returns = np.array([[row["return"] for row in rows] for rows in columns])
            axes.plot(steps, returns.mean(1), color=colour, linewidth=1.6, label=f"{arm} ({len(curves)})")
            axes.fill_between(steps, returns.min(1), returns.max(1), color=colour, alpha=0.18, linewidth=0)
        axes.axhline(TASKS[name].solved, color="#999999", linewidth=0.8, linestyle=":")
        axes.set_title(TASKS[name].environment, loc="left", fontsize=10, fontweight="bold")
        axes.set_xlabel("steps in the environment, on all devices together")
        axes.set_ylabel("mean return of 100 episodes")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:g}k"))
        axes.grid(color="#DDDDDD", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    drawing.tight_layout()
    drawing.savefig(path.with_suffix(".png"), dpi=150)
    drawing.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    pyplot.close(drawing)


def main(arguments: list[str]) -> None:
    """Do what the command line says."""
    reader = argparse.ArgumentParser("python -m benchmarks.learning.acting", description=__doc__)
    reader.add_argument("kind", choices=("run", "report"))
    reader.add_argument("names", nargs="*", help=f"of {', '.join(TASKS)}; all if none")
    reader.add_argument("--arm", action="append", default=[], choices=list(ARMS))
    reader.add_argument("--results", type=Path, default=Path("docs/results/acting.jsonl"))
    reader.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    asked = reader.parse_intermixed_args(arguments)
    if asked.kind == "run":
        notes = runner.notes(shlex.join(["python", "-m", "benchmarks.learning.acting", *arguments]))
        runner.run(asked.results, partial(plan, asked.names, asked.arm), played, asked.workers, notes)
        return
    results = cells.read(asked.results)
    (asked.results.parent / "acting.md").write_text(markdown(results))
    figure(results, asked.results.parent / "acting")


if __name__ == "__main__":
    main(sys.argv[1:])
