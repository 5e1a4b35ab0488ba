"""The update that outlasts its client: whole, of this device, of this run, or not at all."""

import hashlib
import logging
import os
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest

from edgeflock.client.training.spool import Spool
from edgeflock.shared.protocol.messages import Facts, Update
from tests.integration.test_reconnect import update

RUN, LAYOUT, MOST = "run", b"12345678", 1 << 16
SERVER = "https://192.0.2.1:8470"


@pytest.fixture
def kept(tmp_path: Path) -> Update:
    facts: Facts = {"cpu": 3.0}
    one = replace(update(8, 3, pull=True), facts=facts, held=77)
    Spool(tmp_path, SERVER, "pi").save(RUN, LAYOUT, one)
    return one


def found(directory: Path, device: str = "pi", run: str = RUN, layout: bytes = LAYOUT) -> Update | None:
    return Spool(directory, SERVER, device).load(run, layout, MOST)


def the_file(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def test_it_is_there_after_a_restart_until_it_is_settled(tmp_path: Path, kept: Update) -> None:
    assert the_file(tmp_path).stat().st_mode & 0o777 == 0o600
    assert found(tmp_path) == kept == found(tmp_path)
    Spool(tmp_path, SERVER, "pi").drop()
    assert found(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_the_next_one_takes_its_place(tmp_path: Path, kept: Update) -> None:
    Spool(tmp_path, SERVER, "pi").save(RUN, LAYOUT, update(9, 4))
    assert found(tmp_path) == update(9, 4)


def test_devices_and_servers_have_their_own(tmp_path: Path, kept: Update) -> None:
    assert found(tmp_path, device="other") is None
    assert Spool(tmp_path, "https://192.0.2.2:8470", "pi").load(RUN, LAYOUT, MOST) is None
    assert found(tmp_path) == kept


@pytest.mark.parametrize(("run", "layout"), [("another", LAYOUT), (RUN, b"87654321")])
def test_of_another_run_it_is_dropped_with_a_line(
    run: str, layout: bytes, tmp_path: Path, kept: Update, caplog: pytest.LogCaptureFixture
) -> None:
    assert found(tmp_path, run=run, layout=layout) is None
    (record,) = caplog.records
    assert record.getMessage().endswith("when this device ended: it is of another run")
    assert found(tmp_path) is None


def test_any_byte_that_changed_is_noticed(tmp_path: Path, kept: Update) -> None:
    path = the_file(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert found(tmp_path) is None
        path.write_bytes(whole[:at])
        assert found(tmp_path) is None


@pytest.mark.parametrize(
    "reported",
    [
        b"",
        msgpack.packb(7),
        msgpack.packb([1, RUN, "pi", LAYOUT]),
        msgpack.packb([2, RUN, "pi", LAYOUT, b""]),
        msgpack.packb([1, RUN, "pi", LAYOUT, b"\x93\x03\x01\x02"]),
        msgpack.packb([1, RUN, "pi", LAYOUT, 9]),
        b"\x91" * 2000,
        msgpack.packb([1, RUN, "pi", LAYOUT, bytes(MOST + (1 << 13))]),
    ],
    ids=["nothing", "number", "short", "format", "a pull", "no bytes", "nested", "too long"],
)
def test_what_was_made_by_others_is_none(
    reported: bytes, tmp_path: Path, kept: Update, caplog: pytest.LogCaptureFixture
) -> None:
    the_file(tmp_path).write_bytes(hashlib.sha256(reported).digest() + reported)
    assert found(tmp_path) is None
    assert len(caplog.records) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_keep_it_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    spool = Spool(tmp_path / "file", SERVER, "pi")
    with caplog.at_level(logging.WARNING):
        spool.save(RUN, LAYOUT, update(8, 3))
        spool.save(RUN, LAYOUT, update(9, 3))
    assert spool.has_failed
    spool.drop()
    (record,) = caplog.records
    assert "cannot be written" in record.getMessage()
    assert "client.directory" in record.getMessage()


def test_what_was_there_stays_whole_if_the_disk_is_full(
    tmp_path: Path, kept: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    Spool(tmp_path, SERVER, "pi").save(RUN, LAYOUT, update(9, 4))
    monkeypatch.undo()
    assert found(tmp_path) == kept
