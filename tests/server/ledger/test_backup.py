"""A run in one file, taken while its server goes on, and what comes of it."""

import io
import tarfile
from pathlib import Path

import pytest

from edgeflock.server.identity import Register
from edgeflock.server.ledger import back_up, restore, verify
from edgeflock.shared.errors import ConfigError, JournalDamaged
from tests.hosting import hosting
from tests.integration.test_reconnect import link, update
from tests.server.pushes import Watched, tampered


def journal_of(directory: Path) -> Path:
    """Twelve updates."""
    run = Watched(directory)
    run.commit(12)
    run.engine.close()
    return directory / "journal.sqlite"


async def test_of_a_server_that_goes_on(tmp_path: Path) -> None:
    run, file = tmp_path / "run", tmp_path / "backup"
    async with hosting(run, closed=True) as hosted:
        pi = hosted.enrol("pi")
        async with link(hosted.port, "pi", pi) as device:
            await device.join()
            for number in (1, 2, 3):
                await device.push(update(number, 0))
            theta = hosted.engine.parameters.theta.tobytes()
            done = back_up(str(run), str(file))
            await device.push(update(4, 0))
            assert hosted.engine.published.version == 4
    assert (done.version, file.stat().st_mode & 0o777) == (3, 0o600)
    assert {"journal.sqlite", "journal.sqlite-mark", "identities.sqlite"} <= set(done.files)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    for same in (True, False):
        fresh = tmp_path / f"fresh-{same}"
        restored = restore(str(file), str(fresh), same_run=same)
        assert (restored.run == done.run, restored.version) == (same, 3)
        assert {path.stat().st_mode & 0o777 for path in fresh.iterdir()} == {0o600}
        assert not verify(fresh / "journal.sqlite").damage
        async with hosting(fresh, closed=True, run=restored.run) as hosted:
            assert hosted.engine.parameters.theta.tobytes() == theta
            assert hosted.register.devices["pi"].digest == Register(run).devices["pi"].digest


def test_what_cannot_be_backed_up_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    with pytest.raises(ConfigError, match="holds no run"):
        back_up(tmp_path, file)
    (tmp_path / "run").mkdir()
    path = journal_of(tmp_path / "run")
    with pytest.raises(ConfigError, match="cannot be written"):
        back_up(path.parent, tmp_path / "nowhere" / "backup")
    tampered(path, "UPDATE updates SET frame = x'00' WHERE version = 9")
    with pytest.raises(JournalDamaged, match="version 9.*edgeflock journal verify"):
        back_up(path.parent, file)
    assert not file.exists()
    file.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="such a file already"):
        back_up(path.parent, file)
    assert file.read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "run"]


def test_what_is_no_backup_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    journal_of(tmp_path / "run")
    file, fresh = tmp_path / "backup", tmp_path / "fresh"
    back_up(tmp_path / "run", file)
    whole = file.read_bytes()
    with pytest.raises(ConfigError, match="not empty"):
        restore(file, tmp_path / "run")
    for octets in (b"", b"no archive", whole[: len(whole) // 2], whole[:-9]):
        file.write_bytes(octets)
        with pytest.raises(ConfigError, match="is no backup"):
            restore(file, fresh)
        assert not fresh.exists()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../evil", tarfile.REGTYPE),
        ("/tmp/evil", tarfile.REGTYPE),
        ("a/b", tarfile.REGTYPE),
        ("..", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("hard", tarfile.LNKTYPE),
        ("folder", tarfile.DIRTYPE),
        ("pipe", tarfile.FIFOTYPE),
        ("journal.sqlite", tarfile.REGTYPE),
    ],
)
def test_a_hostile_backup_writes_nothing_elsewhere(tmp_path: Path, name: str, kind: bytes) -> None:
    file, fresh = tmp_path / "backup", tmp_path / "fresh"
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("journal.sqlite"), io.BytesIO())
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member, io.BytesIO())
    with pytest.raises(ConfigError, match="is no backup of a run: it holds"):
        restore(file, fresh)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup"]


def test_a_journal_that_is_none_is_not_restored(tmp_path: Path) -> None:
    file, fresh = tmp_path / "backup", tmp_path / "fresh"
    fresh.mkdir()
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("journal.sqlite"), io.BytesIO())
    with pytest.raises(ConfigError, match="holds no run"):
        restore(file, fresh)
    assert list(fresh.iterdir()) == []
