"""Who may write a journal in PostgreSQL, when its holder is paused, cut off, or told to stop waiting."""

import threading
from contextlib import closing
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from edgeflock.server.database import UNREACHABLE, JournalLost, Lease, Unreachable, lease_of
from edgeflock.server.hosting.standby import Standby
from edgeflock.server.journal.journal import Journal
from edgeflock.server.journal.stores.postgres import PostgresStore
from edgeflock.server.journal.stores.schema import TABLES
from edgeflock.server.ledger.claim import open_journal
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse
from tests.ports import lasting
from tests.postgres import Cluster, needed
from tests.server.pushes import LAYOUT, REGIME, THETA

LEASE = 60.0


def begun(url: str) -> Journal:
    """The journal of a run with a device, 1."""
    journal = open_journal(url, LEASE)
    journal.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
    journal.add_regime(0, REGIME)
    journal.device_id("one")
    return journal


def a_moment(why: str) -> None:
    """Before the lease is asked for again."""
    threading.Event().wait(0.1)


def end_sessions(postgres: Cluster, what: str) -> None:
    """As PostgreSQL does with those that have been silent for too long; returns once their locks are free."""
    which = f"FROM pg_stat_activity WHERE application_name = 'edgeflock {what}'"
    postgres.execute(f"SELECT pg_terminate_backend(pid, 10000) {which}")


def test_why_a_database_cannot_be_reached_is_one_line() -> None:
    needed()
    with pytest.raises(Unreachable, match="cannot be reached") as failure:
        open_journal(f"postgresql://nobody@127.0.0.1:{lasting()}/nowhere", LEASE)
    assert "\n" not in str(failure.value)


def test_a_database_that_does_not_exist_is_not_waited_for(postgres: Cluster) -> None:
    url = postgres.url().replace("/postgres?", "/nowhere?")
    with pytest.raises(ConfigError, match='"nowhere" does not exist; create it or name another') as failure:
        lease_of(url, LEASE, lambda why: pytest.fail(f"it waits: {why}"))
    assert not isinstance(failure.value, Unreachable)
    assert "\n" not in str(failure.value)


def test_who_was_replaced_writes_nothing(postgres: Cluster) -> None:
    """As if it had been paused, and woke up in the middle of a commit: it has not noticed anything yet."""
    url = postgres.fresh()
    paused = begun(url)
    paused.add_update(1, 1, 1, 1.0, 0.5, 10, b"acknowledged")
    paused.commit()
    end_sessions(postgres, "lease")
    with closing(open_journal(url, LEASE)) as leader:
        assert [update.frame for update in leader.updates(0)] == [b"acknowledged"]
        paused.add_update(2, 1, 2, 1.0, 0.5, 10, b"too late")
        with pytest.raises(JournalLost, match="another server hosts the run"):
            paused.commit()
        with pytest.raises(JournalLost, match="another server hosts the run"):
            paused.add_snapshot(1, THETA)
        leader.add_update(2, 1, 2, 1.0, 0.5, 10, b"in time")
        leader.commit()
        assert [update.frame for update in leader.updates(0)] == [b"acknowledged", b"in time"]
    paused.abandon()


def test_whoever_is_silent_loses_it(postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL ends the silent session by itself, and the next one in line has the lease."""
    url = postgres.fresh()
    silent = Lease(url, LEASE, "paused:1")
    monkeypatch.setattr(silent, "_run_heartbeat", lambda: None)
    assert silent.acquire()
    assert silent._db.row("SHOW idle_session_timeout") == ("1min",)
    whys: list[str] = []

    def wait(why: str) -> None:
        if not whys:  # the minute is soon over
            silent._db.execute("SET idle_session_timeout = 100")
        whys.append(why)
        a_moment(why)

    with closing(lease_of(url, LEASE, wait, "next:2")) as following:
        assert whys[0] == "paused:1 hosts the run"
        assert following.epoch == silent.epoch + 1
    silent.close()


def test_whoever_stops_in_the_middle_of_a_transaction_keeps_nobody_waiting(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the epoch, until PostgreSQL ends that session, too."""
    url = postgres.fresh()
    begun(url).close()
    monkeypatch.setattr(Lease, "_run_heartbeat", lambda lease: None)
    lease = lease_of(url, LEASE)
    store = PostgresStore(url, lease)
    journal = Journal(store)
    journal.add_update(1, 1, 1, 1.0, 0.5, 10, b"never")
    store.insert("updates", TABLES["updates"], journal._updates)
    assert store.row("SHOW idle_in_transaction_session_timeout") == ("1min",)
    store.execute("SET idle_in_transaction_session_timeout = 100")  # the minute is soon over
    lease._db.execute("SET idle_session_timeout = 100")
    with closing(lease_of(url, LEASE, a_moment)) as following:
        assert following.epoch > 2
    with pytest.raises(JournalLost):
        store.commit()
    store.close()


def test_who_lost_it_is_told(postgres: Cluster) -> None:
    url, reported = postgres.fresh(), threading.Event()
    lease = Lease(url, 6.0)  # it looks every two seconds
    assert lease.acquire()
    journal = Journal(PostgresStore(url, lease))
    journal.db.add_loss_callback(reported.set)
    assert not journal.db.loss_reason()
    end_sessions(postgres, "lease")
    assert reported.wait(300)
    assert "the lease of the run is lost" in journal.db.loss_reason()
    with pytest.raises(JournalLost, match="the lease of the run is lost"):
        journal.begin_run("run 1", "package:Model", LAYOUT, THETA, 1.0)
    journal.abandon()


def test_a_commit_that_waits_no_longer_for_its_standby_is_none(postgres: Cluster) -> None:
    """PostgreSQL then says that it is committed, and warns that it is here alone."""
    url = postgres.fresh()
    journal = begun(url)
    postgres.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    postgres.execute("SELECT pg_reload_conf()")
    try:
        failed: list[BaseException] = []

        def commit() -> None:
            """Those before PostgreSQL has read its settings again wait for nobody."""
            try:
                for version in count(1):
                    journal.add_update(version, 1, version, 1.0, 0.5, 10, b"frame")
                    journal.commit()
            except JournalLost as error:
                failed.append(error)

        committing = threading.Thread(target=commit)
        committing.start()
        while committing.is_alive():
            postgres.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
        assert "canceling wait for synchronous replication" in str(failed[0])
    finally:
        postgres.execute("ALTER SYSTEM RESET synchronous_standby_names")
        postgres.execute("SELECT pg_reload_conf()")
        journal.abandon()


def never(why: str) -> None:
    pytest.fail(f"there is nothing to wait for: {why}")


def test_a_schema_that_is_not_there_is_not_waited_for(postgres: Cluster, tmp_path: Path) -> None:
    url = postgres.url("nowhere")
    with pytest.raises(ConfigError, match=r"search_path names nowhere; create it .*CREATE SCHEMA nowhere"):
        open_journal(url, LEASE)
    with pytest.raises(ConfigError, match="has no schema that its user may use"):
        open_journal(url, LEASE, never)
    config = parse(overrides=[f"journal.url={url}", f"server.directory={tmp_path}"])
    with pytest.raises(ConfigError, match="has no schema that its user may use"):
        Standby().tls(config)


def test_a_schema_that_may_not_be_written_is_not_waited_for(postgres: Cluster) -> None:
    postgres.execute("CREATE SCHEMA others; CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA others TO guest")
    options = quote("-csearch_path=others", safe="")
    url = f"postgresql://guest@127.0.0.1:{postgres.port}/postgres?options={options}"
    with pytest.raises(ConfigError, match=r"permission denied for schema others.*GRANT USAGE, CREATE"):
        open_journal(url, LEASE)
    with pytest.raises(ConfigError, match="permission denied for schema others"):
        open_journal(url, LEASE, never)


class Enough(Exception):
    """Waited for long enough."""


def test_why_a_database_does_not_answer_is_for_the_log_alone_and_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    needed()
    whys: list[str] = []

    def wait(why: str) -> None:
        whys.append(why)
        if len(whys) == 3:
            raise Enough

    port = lasting()
    with pytest.raises(Enough):
        lease_of(f"postgresql://postgres@127.0.0.1:{port}/postgres", LEASE, wait)
    assert whys == [UNREACHABLE] * 3
    assert str(port) not in UNREACHABLE
    (record,) = [one for one in caplog.records if str(port) in one.getMessage()]
    assert "onnection refused" in record.getMessage()
