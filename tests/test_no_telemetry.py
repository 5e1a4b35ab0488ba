"""Nothing leaves a machine but to the server that its owner named: libraries do not contact their makers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.backends.graphs import LAYOUT, model

DEVICE = f"""
import sys
from pathlib import Path
from edgeflock.client.backends.onnx import OnnxBackend
from edgeflock.shared.model.layout import Layout
OnnxBackend(Path(sys.argv[1]).read_bytes(), Layout.from_shapes({LAYOUT.shapes()}))
print("trains", flush=True)
sys.stdin.read()
"""

_OF_BUILD_SERVERS = (
    "CI TF_BUILD GITHUB_ACTIONS GITLAB_CI CIRCLECI TRAVIS JENKINS_URL CODEBUILD_BUILD_ID BUILDKITE "
    "TEAMCITY_VERSION APPVEYOR BITBUCKET_BUILD_NUMBER ORT_RUNNING_UNIT_TESTS"
)
"""Variables with which onnxruntime keeps silent by itself."""

_ISOLATED = ("unshare", "-rnmpf", "--mount-proc", "--kill-child", sys.executable, "-m", "tests.namespace")
"""A prefix of commands: without any network, and each name that is asked for becomes a line."""


def environment(home: Path, **changed: str) -> dict[str, str]:
    """That of an owner who set nothing, whose home is `home`."""
    from edgeflock import _NO_TELEMETRY

    left_out = {*_OF_BUILD_SERVERS.split(), *_NO_TELEMETRY}
    own = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**own, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), **changed}


def identifiers(home: Path) -> list[str]:
    """Files in which onnxruntime keeps who this machine is, for its telemetry: it makes them at once."""
    return [path.name for path in home.rglob("deviceid")]


@contextmanager
def running(*command: str, home: Path, **changed: str) -> Iterator[subprocess.Popen[str]]:
    """A program that reads its standard input until it ends."""
    program = subprocess.Popen(
        command, env=environment(home, **changed), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with program:
        yield program
        assert program.stdin is not None
        program.stdin.close()


@pytest.fixture
def device(tmp_path: Path) -> list[str]:
    """A command: a device that trains until its standard input ends."""
    graph = tmp_path / "step.onnx"
    graph.write_bytes(model())
    return [sys.executable, "-c", DEVICE, str(graph)]


@pytest.mark.parametrize("value", ["0", ""])
def test_onnxruntime_makes_no_identifier_unless_the_owner_wants_it(
    value: str, device: list[str], tmp_path: Path
) -> None:
    wanted, usual = tmp_path / "wanted", tmp_path / "usual"
    for home, changed in ((wanted, {"ORT_DISABLE_TELEMETRY": value}), (usual, {})):
        home.mkdir()
        subprocess.run(device, env=environment(home, **changed), stdin=subprocess.DEVNULL, check=True)
    assert identifiers(wanted)
    assert not identifiers(usual)


def isolated() -> bool:
    try:
        return subprocess.run([*_ISOLATED, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not isolated(), reason="this machine gives nobody a network of their own")
def test_a_device_asks_for_no_name(device: list[str], tmp_path: Path) -> None:
    """A device that opened its graph before another one did has asked for none when the other one has, which
    wants telemetry.
    """

    def line_of(program: subprocess.Popen[str]) -> str:
        assert program.stdout is not None
        return program.stdout.readline().strip()

    with running(*_ISOLATED, *device, home=tmp_path) as silent:
        assert line_of(silent) == "trains"
        with running(*_ISOLATED, *device, home=tmp_path, ORT_DISABLE_TELEMETRY="0") as other:
            assert line_of(other) == "trains"
            assert line_of(other).startswith("asked for ")
        assert silent.stdin is not None
        silent.stdin.close()
        assert line_of(silent) == ""


def test_each_library_is_told_unless_the_owner_was_first() -> None:
    from edgeflock import _NO_TELEMETRY

    show = f"import edgeflock.shared, os; print([os.environ[name] for name in {list(_NO_TELEMETRY)}])"
    for own in ({}, dict.fromkeys(_NO_TELEMETRY, "own")):
        environ = {"PATH": os.environ["PATH"], **own}
        done = subprocess.run([sys.executable, "-c", show], env=environ, capture_output=True, text=True)
        assert done.stdout.strip() == str(list({**_NO_TELEMETRY, **own}.values()))
