"""What commands have in common: help, completion, and a log with dates."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from functools import partial
from importlib import metadata

import pytest

from edgeflock.cli import client as client_command
from edgeflock.cli.options import _Lines, _Objects
from edgeflock.client.run.choosing import ClientObjects
from edgeflock.client.training import WorkerProgress
from edgeflock.shared import extras
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.client import ClientSettings
from tests.library.command_line import edgeflock

RECORD = logging.LogRecord("edgeflock.server", logging.INFO, "", 0, "joined %s", ("pi",), None)
IN_A_CLONE = "pip install '.[onnx]' in a clone of Edgeflock"


@pytest.mark.parametrize("command", [(), ("device",), ("device", "revoke"), ("client",), ("client", "join")])
def test_h_is_help(command: tuple[str, ...]) -> None:
    short, long = edgeflock(*command, "-h"), edgeflock(*command, "--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)
    assert "Usage: edgeflock" in short.stdout


def test_an_interrupted_command_says_so() -> None:
    command = [
        sys.executable,
        "-m",
        "edgeflock",
        "client",
        "--server",
        "http://127.0.0.1:1",
        "--data",
        "digits:",
    ]
    by_default = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # not ignored, as in a background job
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=by_default) as process:
        assert process.stderr is not None
        assert "nothing listens at" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().splitlines()[-1] == "edgeflock: interrupted"
    assert process.returncode == 130


def test_a_shell_completes_commands() -> None:
    asked = {"_EDGEFLOCK_COMPLETE": "complete_bash", "COMP_WORDS": "edgeflock de", "COMP_CWORD": "1"}
    program = "import sys; sys.argv = ['edgeflock']; from edgeflock.cli import main; main()"
    environment = os.environ | asked | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["device"], done.stderr
    assert "--install-completion" in edgeflock("--help").stdout


def test_lines_of_the_log_have_dates() -> None:
    line = _Lines().format(RECORD)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d INFO edgeflock.server: joined pi", line
    )
    said = json.loads(_Objects().format(RECORD))
    assert said == {"time": line[:29], "level": "info", "logger": "edgeflock.server", "message": "joined pi"}


def test_a_traceback_is_part_of_its_object() -> None:
    try:
        raise OSError("no disk")
    except OSError:
        record = logging.LogRecord("edgeflock", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert json.loads(_Objects().format(record))["traceback"].endswith("OSError: no disk")


def test_levels_that_are_none_are_refused() -> None:
    done = edgeflock("server", "--log-level", "loud")
    assert done.returncode == 2
    assert "'loud' is not one of" in done.stderr


@pytest.mark.parametrize(
    ("reported", "command"),
    [
        (
            '{"url": "file:///home/me/edge%20flock", "dir_info": {}}',
            "pip install '/home/me/edge flock[onnx]'",
        ),
        (
            '{"url": "file:///tmp/edgeflock-0.1.0-py3-none-any.whl", "archive_info": {}}',
            "pip install '/tmp/edgeflock-0.1.0-py3-none-any.whl[onnx]'",
        ),
        ('{"url": "https://example.org/edgeflock.git"}', IN_A_CLONE),
        ("[]", IN_A_CLONE),
        (None, IN_A_CLONE),
    ],
)
def test_what_to_install_works_from_a_clone(
    reported: str | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index has no package of ours: the command names the clone or the wheel that pip noted, or asks for
    a clone.
    """

    class Installed:
        def read_text(self, name: str) -> str | None:
            return reported

    monkeypatch.setattr(metadata, "distribution", lambda name: Installed())
    assert extras.install_command("onnx") == command


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        ({"cpu": "25"}, "client.cpu = '25' must be a percentage"),
        ({"bandwidth": "50"}, "client.bandwidth = '50' must be 1kB/s or more"),
        ({"pause_on": "battery:40,heat"}, "client.pause_on: 'heat' is none of these: hot:80"),
    ],
)
def test_what_a_client_may_take_is_looked_at_first(
    flags: dict[str, str], reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_command, "log_to_stderr", lambda level, format: None)
    with pytest.raises(ConfigError, match=reported):
        client_command.train(server="http://127.0.0.1:9", **flags)  # type: ignore[arg-type]


@pytest.mark.parametrize("gentle", [True, False])
def test_a_client_gives_way_unless_it_need_not(gentle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    async def run(settings: ClientSettings, on_end: object, given: ClientObjects) -> WorkerProgress:
        seen.append(given.gentle)
        return WorkerProgress()

    monkeypatch.setattr("edgeflock.api.client.run_client", run)
    monkeypatch.setattr(client_command, "log_to_stderr", lambda level, format: None)
    client_command.train(server="http://127.0.0.1:9", set_=[f"client.low_priority={str(gentle).lower()}"])
    assert seen == [gentle]
