"""What a device's process takes at most: a real `edgeflock client` that fine-tunes for a real server."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.finetune.arms import LORA, Task
from benchmarks.finetune.domain import domain, module, weights
from benchmarks.onnx_client import CLIENT

_UPDATES = 3
_IDLE = "edgeflock.client.zoo:DigitsLinear"
"""650 parameters: the process alone."""

_DEVICE = "import sys\nsys.modules['numba'] = None\n" + CLIENT
"""A client without numba, which comes with the extra `server` only."""


def measure(task: Task, folder: Path, backend: str, base: str = "f32") -> dict[str, Any]:
    """Return the peak resident sets in bytes (VmHWM) of two devices; one trains 650 parameters instead.

    `base` is model.lora.base.
    """
    data = domain(folder, task.size, task.tested)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        np.savez(
            place / "domain.npz",
            x_train=data.shares[0].x[:200], y_train=data.shares[0].y[:200],
            x_test=data.test.x[:8], y_test=data.test.y[:8],
        )  # fmt: skip
        tuned = {
            "module": module(task.size),
            "loss": "next_token",
            "weights": str(weights(folder, task.size).resolve()),
            "data": f"npz:{place / 'domain.npz'}",
            "lora": json.dumps({**LORA, "base": base}),
        }
        peak = _peak(place / "tuned", tuned, task.batch, backend)
        idle = _peak(place / "idle", {"module": _IDLE, "data": "digits:"}, task.batch, backend)
    size = weights(folder, task.size).stat().st_size
    return {"peak": peak, "idle": idle, "base": size, "updates": _UPDATES}


def _peak(place: Path, model: dict[str, str], batch: int, backend: str) -> int:
    place.mkdir()
    settings = [f"model.{name}={value}" for name, value in model.items()]
    settings += [f"server.directory={place / 'run'}", "server.port=0", "server.open=true"]
    settings += [f"end.updates={_UPDATES}", f"local.batch={batch}", "evaluation.every=10000"]
    command = [sys.executable, "-m", "edgeflock", "server", "--json"]
    command += [word for setting in settings for word in ("--set", setting)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["url"]
            device = ["--server", url, "--data", model["data"], "--backend", backend, "--name", "device"]
            device += ["--set", f"client.directory={place / 'device'}"]
            device += ["--set", f"client.model={model['module']}"] if backend == "torch" else []
            return 1024 * int(_run(_DEVICE, device, place).split()[-1])
        finally:
            server.send_signal(signal.SIGTERM)


def _run(code: str, words: Sequence[str], place: Path) -> str:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(
        command, env=_environment(), cwd=place, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
