"""A PostgreSQL of the tests' own: Debian's package, in a folder that goes when they do."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.ports import lasting

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 50
shared_buffers = 16MB
max_wal_size = 128MB
fsync = on
"""


def programs() -> Path | None:
    """The folder of initdb and the like; None: they are not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))  # Debian has them on nobody's PATH
    known = shutil.which("initdb")
    return found[-1].parent if found else Path(known).resolve().parent if known else None


def needed() -> Path:
    """`programs`. Skips the test if they or psycopg are not there."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (extra postgres)")
    where = programs()
    if where is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    return where


class Cluster:
    """One PostgreSQL, on a free port of 127.0.0.1."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs, self.port = folder, programs, lasting()
        self._schemas = 0

    def url(self, schema: str = "public", port: int | None = None) -> str:
        """Of a schema in it."""
        options = quote(f"-csearch_path={schema}", safe="")
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/postgres?options={options}"

    def fresh(self) -> str:
        """The URL of a schema that is empty."""
        self._schemas += 1
        self.execute(f"CREATE SCHEMA run{self._schemas}")
        return self.url(f"run{self._schemas}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else []

    def begin(self) -> None:
        """Make it, and start it."""
        self._run("initdb", "-D", self.folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        with (self.folder / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS)
        self.start()

    def start(self) -> None:
        options = f"-p {self.port}"
        log = self.folder / "log"
        self._run("pg_ctl", "-D", self.folder, "-w", "-s", "-l", log, "-o", options, "start")

    def standby(self, folder: Path) -> "Cluster":
        """Another one, that follows this one and without which this one commits nothing."""
        other = Cluster(folder, self.programs)
        own = f"host=127.0.0.1 port={self.port} user=postgres application_name=second"
        self._run("pg_basebackup", "-D", folder, "-R", "-c", "fast", "-d", own)
        with (folder / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{own}'\nsynchronous_standby_names = ''\n")
        other.start()
        self.execute("ALTER SYSTEM SET synchronous_standby_names = 'second'")
        self.execute("SELECT pg_reload_conf()")
        until = time.monotonic() + 60
        while self.execute("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != [(1,)]:
            assert time.monotonic() < until, "the standby does not follow"
            time.sleep(0.05)
        return other

    def promote(self) -> None:
        """From now on it takes writes."""
        self._run("pg_ctl", "-D", self.folder, "-w", "-s", "promote")

    def kill(self) -> None:
        """As if its machine were gone: all of its processes."""
        number = int((self.folder / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(number)], capture_output=True, text=True)
        for one in (number, *map(int, children.stdout.split())):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)

    def stop(self) -> None:
        subprocess.run(
            [self.programs / "pg_ctl", "-D", self.folder, "-s", "-m", "immediate", "stop"],
            check=False, capture_output=True, **_as_postgres(),
        )  # fmt: skip

    def _run(self, program: str, *arguments: object) -> None:
        """Not waiting for whoever it leaves behind, who would hold a pipe."""
        with tempfile.TemporaryFile() as said:
            done = subprocess.run(
                [self.programs / program, *map(str, arguments)],
                stdout=said, stderr=said, check=False, cwd="/", **_as_postgres(),
            )  # fmt: skip
            said.seek(0)
            assert done.returncode == 0, said.read().decode()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """One that runs while the context lasts; skips the test where there is none."""
    where = needed()
    with folder() as at:
        one = Cluster(at, where)
        try:
            one.begin()
            yield one
        finally:
            one.stop()


@contextmanager
def standby(primary: Cluster) -> Iterator[Cluster]:
    """One that follows `primary`, which commits nothing without it."""
    with folder() as at:
        other = primary.standby(at / "data")
        try:
            yield other
        finally:
            other.stop()


@contextmanager
def folder() -> Iterator[Path]:
    """An empty one that PostgreSQL can write, which never runs as root."""
    made = Path(tempfile.mkdtemp(prefix="edgeflock-postgres-"))
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(made, user.pw_uid, user.pw_gid)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _as_postgres() -> dict[str, Any]:
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
