"""What a device keeps of a first model, and what it refuses."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.client.training.replica import Replica
from edgeflock.client.transport.cached_file import CachedFile
from edgeflock.client.transport.first_model import cached_first_model, load_first_model
from edgeflock.shared.codecs import packed, values
from edgeflock.shared.errors import ConfigError, Malformed, WrongDtype
from edgeflock.shared.model.layout import Layout
from edgeflock.shared.model.start import Weights

LAYOUT = Layout.from_shapes([("kernel", (20, 30)), ("bias", (20,))])
THETA = np.random.default_rng(0).standard_normal(LAYOUT.size).astype(np.float32)
F32 = values.CODINGS["f32"].mode
FILE = packed.pack(values.encode(THETA, LAYOUT.counts(None), "f32"), F32)
WEIGHTS = Weights(hashlib.sha256(FILE).digest(), len(FILE), F32, load=True)
ETAG = f'"{WEIGHTS.digest.hex()}"'


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class Server:
    """Sends what is missing of these files, one after the other, and says how much of each it sent."""

    def __init__(self, *files: bytes | None) -> None:
        self.files = list(files)
        self.sent: list[int] = []

    async def load(self, kept: CachedFile) -> bool:
        file = self.files.pop(0)
        if file is None:
            return False
        if kept.missing:
            rest = file[kept.size :]
            assert kept.begin(
                {"ETag": ETAG, "Content-Range": f"bytes {kept.size}-{len(file) - 1}/{len(file)}"}
            )
            for at in range(0, len(rest), 700):
                kept.add(rest[at : at + 700])
            self.sent.append(len(rest))
        return True

    async def bring(self, directory: Path, weights: Weights = WEIGHTS, layout: Layout = LAYOUT) -> Any:
        return await load_first_model(
            self.load, cached_first_model(directory, weights, "pi"), weights, layout, compute=at_once
        )


async def test_it_is_loaded_once(tmp_path: Path) -> None:
    server, replica = Server(FILE), Replica(LAYOUT)
    for _ in range(3):
        replica.take(await server.bring(tmp_path / "kept"))
        assert (replica.version, replica.held) == (0, 0)
        assert replica.theta.tobytes() == THETA.tobytes()
    assert server.sent == [len(FILE)]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [f"{WEIGHTS.digest.hex()}.first-model"]


async def test_what_is_there_is_used_even_if_loading_would_not_pay(tmp_path: Path) -> None:
    no_load = WEIGHTS._replace(load=False)
    assert await Server().bring(tmp_path, no_load) is None
    await Server(FILE).bring(tmp_path)
    model = await Server().bring(tmp_path, no_load)
    assert model.values == THETA.tobytes()


async def test_a_restart_goes_on_with_the_part_that_came(tmp_path: Path) -> None:
    part = cached_first_model(tmp_path, WEIGHTS, "pi")
    part.add(FILE[:1000])
    server = Server(FILE)
    assert (await server.bring(tmp_path)).values == THETA.tobytes()
    assert server.sent == [len(FILE) - 1000]


@pytest.mark.parametrize("came", [1000, len(FILE), len(FILE) + 5])
async def test_a_damaged_part_costs_one_more_load(came: int, tmp_path: Path) -> None:
    cached_first_model(tmp_path, WEIGHTS, "pi").add(b"?")
    (part,) = tmp_path.glob("*.part")
    part.write_bytes(bytes(came))
    server = Server(FILE, FILE)
    assert (await server.bring(tmp_path)).values == THETA.tobytes()
    assert sum(server.sent) <= 2 * len(FILE) - min(came, len(FILE))


async def test_a_file_that_was_damaged_since_is_loaded_again(tmp_path: Path) -> None:
    await Server(FILE).bring(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(bytes(len(FILE)))
    server = Server(FILE)
    assert (await server.bring(tmp_path)).values == THETA.tobytes()
    assert server.sent == [len(FILE)]


async def test_another_digest_twice_ends_it(tmp_path: Path) -> None:
    other = bytes(len(FILE))
    server = Server(other, other, FILE)
    with pytest.raises(Malformed, match="a first model twice that is not the one it announced"):
        await server.bring(tmp_path)
    assert server.sent == [len(FILE)] * 2
    assert not list(tmp_path.iterdir()), "nothing of it is kept"


async def test_a_server_that_has_it_no_longer_is_pulled_from(tmp_path: Path) -> None:
    assert await Server(None).bring(tmp_path) is None


async def test_more_than_the_layout_can_take_is_not_even_asked_for(tmp_path: Path) -> None:
    weights = WEIGHTS._replace(size=packed.max_size(4 * LAYOUT.size) + 1)
    with pytest.raises(Malformed, match=f"announces a first model of {weights.size} bytes"):
        await Server().bring(tmp_path, weights)


@pytest.mark.parametrize("mode", [3, 77])
async def test_a_mode_of_no_model_is_not_even_asked_for(mode: int, tmp_path: Path) -> None:
    with pytest.raises(WrongDtype, match=f"value mode {mode}"):
        await Server().bring(tmp_path, WEIGHTS._replace(mode=mode))


async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = packed.pack(bytes(8), F32)
    weights = Weights(hashlib.sha256(file).digest(), len(file), F32, load=True)
    kept = cached_first_model(tmp_path, weights, "pi")
    kept.add(file)
    with pytest.raises(WrongDtype, match="the packed model does not hold"):
        await load_first_model(Server(file).load, kept, weights, LAYOUT, at_once)


LIES: list[tuple[dict[str, str], str]] = [
    ({"Content-Length": "5"}, "sends one of 5 from byte 0 on"),
    ({"Content-Range": f"bytes 7-{len(FILE) - 1}/{len(FILE)}"}, "from byte 7 on"),
    ({"Content-Range": "bytes 10-20/21"}, "sends one of 21 from byte 10 on"),
]


@pytest.mark.parametrize(("headers", "said"), LIES)
def test_an_answer_of_another_length_is_refused(headers: dict[str, str], said: str, tmp_path: Path) -> None:
    kept = cached_first_model(tmp_path, WEIGHTS, "pi")
    kept.add(FILE[:10])
    with pytest.raises(Malformed, match=said):
        kept.begin({"ETag": ETAG, **headers})


def test_more_than_was_announced_is_refused(tmp_path: Path) -> None:
    kept = cached_first_model(tmp_path, WEIGHTS, "pi")
    kept.add(FILE)
    with pytest.raises(Malformed, match="more than the"):
        kept.add(b"!")


def test_an_answer_from_the_start_replaces_the_part(tmp_path: Path) -> None:
    kept = cached_first_model(tmp_path, WEIGHTS, "pi")
    kept.add(b"wrong")
    assert kept.headers["Range"] == "bytes=5-"
    assert kept.begin({"ETag": ETAG, "Content-Length": str(len(FILE))})
    kept.add(FILE)
    path = kept.complete()
    assert path is not None
    assert path.read_bytes() == FILE


def test_an_answer_of_another_file_leaves_the_part(tmp_path: Path) -> None:
    kept = cached_first_model(tmp_path, WEIGHTS, "pi")
    kept.add(FILE[:5])
    assert not kept.begin({"ETag": '"another"', "Content-Length": "3"})
    assert kept.size == cached_first_model(tmp_path, WEIGHTS, "pi").size == 5
    assert cached_first_model(tmp_path, WEIGHTS, "another device").size == 0


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"client.directory = '.*' cannot keep the first model: .*; name"):
        cached_first_model(tmp_path / "file" / "folder", WEIGHTS, "pi")


def test_the_latest_few_are_kept(tmp_path: Path) -> None:
    for number in range(7):
        file = bytes([number]) * 9
        kept = cached_first_model(tmp_path, Weights(hashlib.sha256(file).digest(), 9, F32, load=True), "pi")
        kept.add(file)
        assert kept.complete() is not None
    assert len(list(tmp_path.iterdir())) == 4


async def test_a_disk_without_room_is_named_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=len(FILE) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    server = Server(FILE)
    with pytest.raises(
        ConfigError, match=r"client.directory = .* left, and the first model takes .*: free some"
    ):
        await server.bring(tmp_path)
    assert server.sent == []
