"""What a device pays for the onnx client, against torch: time to import, memory, and disk.

Everything is measured in processes of its own, one thread each, the two backends in turn. Import is that of
edgeflock.client.run and the backend, within a running interpreter; launch is an interpreter from its start
until it has loaded all that `edgeflock client` does. Memory is the peak of the resident set (VmHWM) of a real
`edgeflock client`, read when it ends after its steps for an `edgeflock server` of PaperCNN on loopback; its
data, 600 images in float32, are 1.9 MB of that. Disk is what 'edgeflock[onnx]' and all that it needs take up,
without pip: installed in a fresh environment on this machine, and as unpacked from the wheels for 64-bit Arm.
Prints a Markdown table and one JSON object.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from benchmarks.plain import FOUR_BITS
from edgeflock.papers.machine import machine

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = str(ROOT / "constraints.txt")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ENVIRONMENT.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # pip compiles what it installs; a checkout does it when it runs
BACKENDS = ("onnx", "torch")

IMPORT = """
import time
began = time.perf_counter()
import edgeflock.client.run, edgeflock.client.backends.{backend}
print(time.perf_counter() - began)
"""

LAUNCH = """
import edgeflock.cli, edgeflock.shared.settings.config
import edgeflock.client.run, edgeflock.client.backends.{backend}
"""

CLIENT = """
import atexit, sys

@atexit.register
def peak():
    with open("/proc/self/status") as status:
        print(next(line for line in status if line.startswith("VmHWM")).split()[1])

from edgeflock.cli import main
sys.argv = ["edgeflock", "client", *sys.argv[1:]]
main()
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """Medians; the ratio's is of the rounds' own ratios."""

    onnx: float
    torch: float
    ratio: float

    @classmethod
    def of(cls, rounds: list[list[float]]) -> "Pair":
        onnx, torch = (statistics.median(column) for column in zip(*rounds, strict=True))
        return cls(onnx, torch, statistics.median(onnx / torch for onnx, torch in rounds))


def import_seconds(backend: str) -> float:
    """The client's modules with `backend`, in a fresh interpreter."""
    return float(_python("-c", IMPORT.format(backend=backend)))


def launch_seconds(backend: str) -> float:
    began = time.perf_counter()
    _python("-c", LAUNCH.format(backend=backend))
    return time.perf_counter() - began


def peak_megabytes(backend: str, steps: int, directory: Path) -> float:
    """VmHWM of a client that took part in a run of `steps` batches of 10."""
    data = directory / "data.npz"
    random = np.random.default_rng(0)
    images, digits = random.random((660, 1, 28, 28), np.float32), random.integers(0, 10, 660)
    np.savez(data, x_train=images[:600], y_train=digits[:600], x_test=images[600:], y_test=digits[600:])
    with serving(directory / "run", data, steps) as url:
        options = ("--server", url, "--data", f"npz:{data}", "--backend", backend, "--name", "device")
        return int(_python("-c", CLIENT, *options)) * 1024 / 1e6


@contextmanager
def serving(directory: Path, data: Path, updates: int) -> Iterator[str]:
    """The URL of a server of PaperCNN that stops after `updates`."""
    settings = [
        *FOUR_BITS,
        f"server.directory={directory}",
        "server.port=0",
        "server.open=true",
        f"end.updates={updates}",
        "model.module=edgeflock.client.zoo:PaperCNN",
        f"model.data=npz:{data}",
    ]
    command = [sys.executable, "-m", "edgeflock", "server", "--json"]
    for setting in settings:
        command += ["--set", setting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.send_signal(signal.SIGTERM)


def build_wheel(directory: Path) -> Path:
    """Edgeflock's, built from a copy, so that nothing is left behind in the checkout."""
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, directory / "source", ignore=unwanted)
    _pip(sys.executable, "wheel", "--no-deps", "-w", str(directory), str(directory / "source"))
    (wheel,) = directory.glob("*.whl")
    return wheel


def installed_bytes(wheel: Path, directory: Path) -> tuple[int, int]:
    """(without, with) .pyc files: 'edgeflock[onnx]' in a fresh environment, without pip and setuptools."""
    venv.create(directory, with_pip=True)
    _pip(str(directory / "bin" / "python"), "install", "-c", CONSTRAINTS, f"{wheel}[onnx]")
    (packages,) = directory.glob("lib/python*/site-packages")
    theirs = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
    files = [
        path
        for path in packages.rglob("*")
        if path.is_file() and path.relative_to(packages).parts[0].split("-")[0] not in theirs
    ]
    return _bytes(path for path in files if path.suffix != ".pyc"), _bytes(files)


def arm_bytes(wheel: Path, directory: Path) -> int:
    """What the wheels of the same for Python 3.11 on 64-bit Arm unpack to."""
    options = ["--only-binary=:all:", "--python-version", "3.11", "-d", str(directory), "-c", CONSTRAINTS]
    for platform in ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"):
        options += ["--platform", platform]
    _pip(sys.executable, "download", *options, f"{wheel}[onnx]")
    wheels = (ZipFile(path) for path in directory.glob("*.whl"))
    return sum(member.file_size for archive in wheels for member in archive.infolist())


def _pip(python: str, command: str, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", command, "--quiet", *arguments], check=True, stdout=sys.stderr)


def _bytes(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _python(*arguments: str) -> str:
    """Return the stdout of a fresh interpreter, away from the checkout."""
    run = [sys.executable, *arguments]
    with tempfile.TemporaryDirectory() as elsewhere:
        return subprocess.run(
            run, env=ENVIRONMENT, cwd=elsewhere, stdout=subprocess.PIPE, text=True, check=True
        ).stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.onnx_client", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="imports of each, in turn")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="client processes of each, in turn")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of each client")
    arguments = parser.parse_args()
    import_seconds("torch"), import_seconds("onnx")  # compiles what is not
    imports, launches = [], []
    for _ in range(arguments.rounds):
        imports.append([import_seconds(backend) for backend in BACKENDS])
        launches.append([launch_seconds(backend) for backend in BACKENDS])
    peaks = []
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory() as folder:
            made = []
            for backend in BACKENDS:
                (directory := Path(folder) / backend).mkdir()
                made.append(peak_megabytes(backend, arguments.steps, directory))
            peaks.append(made)
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        bare, compiled = installed_bytes(wheel, Path(folder) / "environment")
        arm = arm_bytes(wheel, Path(folder) / "arm")
    imported, launched, peak = Pair.of(imports), Pair.of(launches), Pair.of(peaks)
    print("| | onnx | torch | onnx / torch | target |\n|---|--:|--:|--:|--:|")
    print(f"| import | {imported.onnx:.2f} s | {imported.torch:.2f} s | {imported.ratio:.3f} | 0.25 |")
    print(f"| launch | {launched.onnx:.2f} s | {launched.torch:.2f} s | {launched.ratio:.3f} | |")
    print(f"| peak memory | {peak.onnx:.1f} MB | {peak.torch:.1f} MB | {peak.ratio:.2f} | 110 MB |")
    print(f"| disk, this machine | {bare / 1e6:.1f} MB, {compiled / 1e6:.1f} MB with .pyc | | | 140 MB |")
    print(f"| disk, 64-bit Arm | {arm / 1e6:.1f} MB without .pyc | | | 140 MB |")
    record = {
        "machine": machine(),
        "import_s": asdict(imported),
        "launch_s": asdict(launched),
        "peak_mb": asdict(peak),
        "peaks_mb": peaks,
        "disk_mb": {"without_pyc": bare / 1e6, "with_pyc": compiled / 1e6, "arm_without_pyc": arm / 1e6},
    }
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
