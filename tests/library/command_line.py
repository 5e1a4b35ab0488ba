"""The edgeflock command in a process of its own, forked from one that has imported what commands import."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from edgeflock.cli import main

ROOT = Path(__file__).parents[2]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        *("edgeflock.client.run", "edgeflock.devices.emulation", "edgeflock.server.app", "benchmarks.audit"),
        *("edgeflock.cli.app", "edgeflock.shared.model.torch_module", "tests.exporting"),
    ]
)


def edgeflock(
    *arguments: str, cwd: Path | None = None, lacking: str = ""
) -> subprocess.CompletedProcess[str]:
    """`edgeflock ARGUMENTS`, in `cwd`, where no package is called `lacking`.

    It can import the tests' models from anywhere.
    """
    with TemporaryDirectory() as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        given = arguments, cwd or Path.cwd(), dict(os.environ), out, err, lacking
        process = PROCESSES.Process(target=_run, args=given)
        process.start()
        process.join()
        assert process.exitcode is not None, "it has ended"
        return subprocess.CompletedProcess(arguments, process.exitcode, out.read_text(), err.read_text())


@contextmanager
def running(*arguments: str, cwd: Path, said: Path) -> Iterator[BaseProcess]:
    """`edgeflock ARGUMENTS` in `cwd`, until it is killed; what it says goes to the end of `said`."""
    process = PROCESSES.Process(target=_run, args=(arguments, cwd, dict(os.environ), said, said, ""))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _run(
    arguments: tuple[str, ...], cwd: Path, environment: dict[str, str], out: Path, err: Path, lacking: str
) -> None:
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    if lacking:
        assert lacking not in sys.modules
        sys.modules[lacking] = None  # type: ignore[assignment]
    sys.argv = ["edgeflock", *arguments]
    sys.path[:0] = [str(cwd), str(ROOT)]
    main()
