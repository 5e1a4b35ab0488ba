"""From a clone to a table trained on a separate device without torch: README's "On your devices".

    python -m benchmarks.first_run [--folder DIR]

Two clones with a virtual environment each, on this machine; packages come from where pip finds them. What a
reader puts in is put in: a table for either end, the address and the token that the server prints.
"""

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]

BLOCKS = dict(
    re.findall(
        r"<!-- (server|device) -->\n```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
)

LIMIT = 1800.0
"""Seconds after which the server is given up."""


def table(path: Path, seed: int, rows: int) -> None:
    """30 readings of a machine, of which some say whether it runs."""
    random = np.random.default_rng(seed)
    lines = [",".join([*(f"reading_{number}" for number in range(30)), "state"])]
    for row in random.normal(100, 15, (rows, 30)):
        state = "runs" if row[:10].sum() + 0.3 * row[10:20].sum() > 1300 else "idle"
        lines.append(",".join([*(f"{value:.2f}" for value in row), state]))
    path.write_text("\n".join(lines) + "\n")


def clone(folder: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def environment(home: Path) -> dict[str, str]:
    """A reader's: nothing of this process's Python, and a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "EDGEFLOCK"))}
    return kept | {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}


def printed(log: Path, pattern: str, server: "subprocess.Popen[bytes]") -> re.Match[str]:
    """What the server says, once it says it."""
    until = time.monotonic() + LIMIT
    while not (found := re.search(pattern, log.read_text())):
        if server.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"the server did not start:\n{log.read_text()}")
        time.sleep(0.2)
    return found


def run(folder: Path) -> None:
    """Prints the seconds of each part."""
    began = last = time.monotonic()

    def note(what: str) -> None:
        nonlocal last
        now = time.monotonic()
        print(f"{what:34} {now - last:7.1f} s", flush=True)
        last = now

    vm, device = clone(folder / "vm"), clone(folder / "device")
    table(vm / "held_out.csv", 0, 200)
    table(device / "captures.csv", 1, 2000)
    note("two clones and a table each")
    log = folder / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            ["bash", "-ec", BLOCKS["server"]], cwd=vm, env=environment(folder / "vm"), stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        printed(log, r"wrote .*edgeflock\.toml", server)
        note("the server's packages")
        token = printed(log, r"client join https://\S+ (\S+)", server)[1]
        note("project, check and server")
        text = BLOCKS["device"].replace("192.0.2.1:8470 TOKEN", f"127.0.0.1:8470 {token}")
        done = subprocess.run(
            ["bash", "-ec", text], cwd=device, env=environment(folder / "device"), check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        note("the device: packages and training")
        if done.returncode:
            raise SystemExit(done.stdout)
        print(done.stdout.splitlines()[-1])
        status = subprocess.run(
            [vm / ".venv/bin/edgeflock", "status", "https://127.0.0.1:8470", "--token-file",
             "edgeflock-run/admin-token"],
            cwd=vm / "captures", env=environment(folder / "vm"), check=True, capture_output=True, text=True,
        )  # fmt: skip
        print(next(line.strip() for line in status.stdout.splitlines() if "accuracy" in line))
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{'from the clone to the model':34} {time.monotonic() - began:7.1f} s")
    print(f"{'of which a processor computed':34} {used.ru_utime + used.ru_stime:7.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time README's commands for devices, from a clone.")
    parser.add_argument("--folder", type=Path, help="where the two machines are; default: a temporary one")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="edgeflock-first-run-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(folder)
    finally:
        for name in ("vm", "device"):
            shutil.rmtree(folder / name, ignore_errors=True)


if __name__ == "__main__":
    main()
