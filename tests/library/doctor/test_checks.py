"""Each check by itself, of machines that are made up."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeflock.doctor import checks, files, machine
from edgeflock.doctor.connection import Answer, check_answer
from edgeflock.doctor.finding import CheckResult
from edgeflock.doctor.machine import check_package
from edgeflock.server.identity import own_certificate
from edgeflock.shared.settings.client import ClientSettings

GIB = 1 << 30


@pytest.mark.parametrize(
    ("version", "bits", "libc", "state"),
    [
        ((3, 11, 2), 64, ("glibc", "2.36"), "ok"),
        ((3, 13, 0), 64, ("", ""), "ok"),
        ((3, 11, 2), 32, ("glibc", "2.36"), "bad"),
        ((3, 10, 12), 64, ("glibc", "2.35"), "bad"),
        ((3, 11, 2), 64, ("glibc", "2.27"), "bad"),
        ((3, 12, 0), 64, ("musl", "1.2.4"), "bad"),
    ],
)
def test_python(version: tuple[int, int, int], bits: int, libc: tuple[str, str], state: str) -> None:
    assert_finding(machine.python(version, bits, libc), state)


def test_the_clock(tmp_path: Path) -> None:
    assert_finding(machine.clock(2000.0, 1000.0, tmp_path), "ok")
    assert_finding(machine.clock(0.0, 1000.0, tmp_path), "bad")
    (tmp_path / "run/systemd/timesync").mkdir(parents=True)
    assert_finding(machine.clock(2000.0, 1000.0, tmp_path), "warn")
    (tmp_path / "run/systemd/timesync/synchronized").touch()
    assert_finding(machine.clock(2000.0, 1000.0, tmp_path), "ok")
    assert machine.skew(2000.0, None) is None
    assert_finding(machine.skew(2000.0, 2004.0), "ok")
    assert_finding(machine.skew(0.0, 2004.0), "warn")


@pytest.mark.parametrize(
    ("free", "writable", "state"),
    [(2 * GIB, True, "ok"), (GIB // 2, True, "warn"), (GIB // 20, True, "bad"), (2 * GIB, False, "bad")],
)
def test_the_disk(free: int, writable: bool, state: str) -> None:
    assert_finding(machine.disk(Path("run"), free, writable, GIB), state)


def test_memory_and_whether_it_is_counted(tmp_path: Path) -> None:
    assert_finding(machine.memory(4 * GIB, tmp_path), "ok")
    assert_finding(machine.memory(200 << 20, tmp_path), "warn")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    controllers = tmp_path / "sys/fs/cgroup/cgroup.controllers"
    controllers.write_text("cpuset cpu io pids\n")  # as Raspberry Pi OS has it
    assert_finding(machine.memory(4 * GIB, tmp_path), "warn", "cgroup_enable=memory")
    controllers.write_text("cpuset cpu io memory pids\n")
    assert_finding(machine.memory(4 * GIB, tmp_path), "ok")


def test_power_and_heat() -> None:
    assert machine.power(None) is None
    assert machine.heat(None) is None
    assert_finding(machine.power(1), "bad", "supply")
    assert_finding(machine.power(0), "ok")
    assert_finding(machine.heat(61.8), "ok")
    assert_finding(machine.heat(77.0), "warn")
    assert_finding(machine.heat(83.5), "bad")


def test_open_files() -> None:
    assert_finding(machine.open_files(1024, 10_000), "warn", "ulimit -n 11088")
    assert_finding(machine.open_files(65_536, 10_000), "ok")
    assert_finding(machine.open_files(-1, 10_000), "ok")


@pytest.mark.parametrize(
    ("code", "last", "state", "says"),
    [
        (0, "", "ok", "numpy 2"),
        (-4, "", "bad", "SIGILL"),
        (1, "ModuleNotFoundError: No module named 'numpy'", "bad", "is not installed"),
        (1, "ImportError: libgomp.so.1: cannot open shared object file", "bad", "libgomp"),
    ],
)
def test_a_package(code: int, last: str, state: str, says: str) -> None:
    entries = check_package("numpy", "pip install 'edgeflock[onnx]'", lambda module: (code, last))
    assert_finding(entries, state)
    assert says in entries.said


def test_a_package_that_is_there_and_one_that_is_not() -> None:
    assert check_package("msgpack", "").state == "ok"
    assert_finding(check_package("no_such_module", "pip install it"), "bad", "pip install it")


@pytest.mark.parametrize(
    ("uri", "state", "says"),
    [
        ("mqtt://127.0.0.1:1/sensors", "ok", "which was not opened; its URI is right"),
        ("mqtt://127.0.0.1:1", "bad", "mqtt://"),
        ("kafka://pi@127.0.0.1:1/topic", "bad", "a user and a password go together"),
        ("http:///now", "bad", "there is no host"),
        ("mqtt://127.0.0.1:1/sensors?sessions=pi", "bad", "sessions"),
    ],
)
def test_the_address_of_a_stream(uri: str, state: str, says: str) -> None:
    entries = checks._check_data(ClientSettings(data=uri))
    assert_finding(entries, state)
    assert says in entries.said


def test_who_can_read_a_credential(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    assert_finding(files.secret(path), "bad", "client join")
    path.touch(0o600)
    assert_finding(files.secret(path), "ok")
    path.chmod(0o640)
    assert_finding(files.secret(path), "bad", f"chmod 600 {path}")


def test_who_can_read_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert_finding(files.directory(run), "ok")
    run.mkdir(0o755)
    (run / "certificate.pem").touch(0o644)
    (run / "journal.sqlite").touch(0o600)
    assert_finding(files.directory(run), "ok")
    (run / "admin-token").touch(0o644)
    assert_finding(files.directory(run), "bad", "chmod")
    assert "admin-token" in files.directory(run).said
    run.chmod(0o700)
    assert_finding(files.directory(run), "ok")


def test_a_certificate(tmp_path: Path) -> None:
    path = own_certificate(tmp_path, "127.0.0.1").certificate
    assert_finding(files.certificate(path), "ok")
    ten_years = datetime.now(UTC).year + 10
    assert_finding(files.certificate(path, datetime(ten_years + 1, 1, 1, tzinfo=UTC)), "bad", "same key")
    path.write_text("no certificate")
    assert_finding(files.certificate(path), "bad")
    assert_finding(files.certificate(tmp_path / "none.pem"), "bad")


@pytest.mark.parametrize(
    ("answer", "state", "says"),
    [
        (Answer("https://s", 200), "ok", "knows this device"),
        (Answer("https://s", 401), "bad", "revoked"),
        (Answer("https://s", 503), "warn", "503"),
        (Answer("https://s", 404), "bad", "no Edgeflock server"),
        (Answer("https://s", error="Connection refused"), "bad", "Connection refused"),
    ],
)
def test_the_line(answer: Answer, state: str, says: str) -> None:
    entries = check_answer(answer)
    assert_finding(entries, state)
    assert says in entries.said


def test_a_finding_is_a_line_and_what_to_do() -> None:
    assert CheckResult("disk", "ok", "5 GB").lines() == ["ok    disk      5 GB"]
    first, second = CheckResult("power", "bad", "weak", "another supply").lines()
    assert (first, second.strip()) == ("bad   power     weak", "another supply")


def assert_finding(entries: CheckResult | None, state: str, remedy: str = "") -> None:
    """It says something, and what to do unless it is ok."""
    assert entries is not None
    assert entries.state == state
    assert entries.said
    assert bool(entries.remedy) == (state != "ok")
    assert remedy in entries.remedy
