"""README's "On your devices" is true: its commands run as they stand there, but for what installs.

Server and device have an `edgeflock` each; the device finds neither torch nor what else a server needs.
"""

import asyncio
import os
import re
import shlex
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.ports import lasting

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TEXT = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"<!-- (server|device|status) -->\n```sh\n(.*?)```", TEXT, re.DOTALL))

WITHOUT = ("torch", "onnx", "onnxscript", "numba", "safetensors", "sklearn", "PIL", "pyarrow")
"""What a device with the extra `onnx` does not have."""

INSTALLS = ("python3 -m venv ", "pip install ")


def commands(block: str) -> list[str]:
    """The lines of a block behind what installs, of which there is some unless it goes on from another."""
    lines = BLOCKS[block].splitlines()
    return [line for line in lines if not line.startswith(INSTALLS)]


def place(folder: Path, without: tuple[str, ...] = ()) -> Path:
    """A machine's folder, with an `edgeflock` in bin that cannot import some modules."""
    (folder / "bin").mkdir(parents=True)
    program = (
        f"import sys; sys.path[:0] = {[path or os.getcwd() for path in sys.path]!r}\n"
        f"sys.modules.update(dict.fromkeys({without!r}))\n"
        "from edgeflock.cli import main; main()\n"
    )
    (folder / "bin" / "program.py").write_text(program)
    script = (
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(folder / "bin/program.py"))} "$@"\n'
    )
    (folder / "bin" / "edgeflock").write_text(script)
    (folder / "bin" / "edgeflock").chmod(0o755)
    return folder


@asynccontextmanager
async def running(text: str, folder: Path, log: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The commands in a shell of the machine `folder`, which have a home there; what they say is in `log`."""
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "XDG_CACHE_HOME": str(folder),
        "EDGEFLOCK_SERVER__PORT": str(port),
        "EDGEFLOCK_END__UPDATES": "40",
    }
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *("sh", "-ec", text), cwd=folder, env=environment, stdin=DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, 9)
        await process.wait()


async def done(text: str, folder: Path, log: Path, port: int) -> str:
    async with running(text, folder, log, port) as process:
        await process.wait()
    assert process.returncode == 0, log.read_text()
    return log.read_text()


def table(path: Path, seed: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    lines = ["pressure,state,heat"]
    for _ in range(rows):
        pressure, heat = random.normal(1000, 50), random.normal(20, 5)
        state = "runs" if (pressure - 1000) / 50 + (heat - 20) / 5 > 0 else "idle"
        lines.append(f"{pressure:.2f},{state},{heat:.2f}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.slow
async def test_a_table_trains_on_a_device_without_torch(tmp_path: Path) -> None:
    port = lasting()
    vm, device = place(tmp_path / "vm"), place(tmp_path / "device", WITHOUT)
    table(vm / "held_out.csv", 0, 60)
    table(device / "captures.csv", 1, 300)
    log = tmp_path / "server.log"
    async with running("\n".join(commands("server")), vm, log, port) as server:
        while not (printed := re.search(r"client join (https://\S+:\d+) (\S+)", log.read_text())):
            assert server.returncode is None, log.read_text()
            await asyncio.sleep(0.1)
        text = "\n".join(commands("device"))
        assert "https://192.0.2.1:8470 TOKEN" in text
        text = text.replace("https://192.0.2.1:8470 TOKEN", f"https://127.0.0.1:{port} {printed[2]}")
        reported = await done(text, device, tmp_path / "device.log", port)
        assert "40 updates from 1280 samples" in reported
        status = "\n".join(commands("status")).replace(":8470", f":{port}")
        shown = ""
        while not re.search(r"accuracy\W+\d", shown):
            shown = await done(f"cd captures\n{status}", vm, tmp_path / "status.log", port)
    checked = log.read_text()
    assert "60 samples to evaluate on" in checked
    assert "classes idle, runs" in checked
