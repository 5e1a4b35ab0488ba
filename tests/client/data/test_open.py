"""From client.data to what a worker trains on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeflock.client.data.batcher import Shuffled
from edgeflock.client.data.open import open_batches, parse_shards
from edgeflock.client.data.stream_batches import StreamBatches
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.client import ClientSettings
from tests.client.training.fakes import WELCOME, FakeBackend


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    path = tmp_path / "few.npz"
    np.savez(path, x_train=np.arange(40, dtype=np.float32).reshape(20, 2), y_train=np.arange(20) % 3)
    return path


async def test_stored_data_are_shuffled(npz: Path) -> None:
    async with open_batches(ClientSettings(data=f"npz:{npz}")) as batches:
        assert isinstance(batches, Shuffled)
        batches.begin(WELCOME, FakeBackend())
        await batches.ready(1)
        x, _ = batches.take(20)
        assert sorted(x[:, 0]) == list(range(0, 40, 2))


async def test_a_stream_comes_in_and_is_kept_where_the_settings_say(npz: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.sqlite"
    settings = ClientSettings(
        data=f"synthetic:npz:{npz}?rate=100000&once&order=kept", buffer=str(kept), batch_min=2, batch_max=6
    )
    seen: list[float] = []
    async with open_batches(settings) as batches:
        assert isinstance(batches, StreamBatches)
        await batches.ready(1)
        x, _ = batches.take(1)
        assert 2 <= len(x) <= 6
        seen += x[:, 0].tolist()
        batches.settle()
    async with open_batches(settings) as batches:  # what was kept comes first, then the stream anew
        await batches.ready(1)
        x, _ = batches.take(1)
        assert x[0, 0] in (seen[-1] + 2, 0.0)
    assert kept.exists()


async def test_devices_with_one_uri_draw_streams_of_their_own(npz: Path) -> None:
    async def first(name: str, seed: int = 0, option: str = "") -> list[float]:
        uri = f"synthetic:npz:{npz}?rate=100000&order=shuffled{option}"
        async with open_batches(ClientSettings(name=name, seed=seed, data=uri)) as batches:
            await batches.ready(1)
            return batches.take(1)[0][:8, 0].tolist()  # type: ignore[no-any-return]

    fleet = [await first("pi-1"), await first("pi-2"), await first("pi-1", seed=1)]
    assert all(fleet.count(one) == 1 for one in fleet)
    assert await first("pi-1") == fleet[0]
    assert await first("pi-1", option="&seed=7") == await first("pi-2", option="&seed=7") not in fleet


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ClientSettings(data="npz:nowhere.npz"), "there is no such file"),
        (ClientSettings(data="smoke:signals"), "known are"),
        (ClientSettings(data="MQTT://127.0.0.1/a"), "did you mean mqtt:"),
        (ClientSettings(data="mqt://127.0.0.1/a"), "did you mean mqtt:"),
        (
            ClientSettings(data="mqtt://127.0.0.1/a", batch_min=9, batch_max=8),
            "client.batch_min = 9 is above",
        ),
        (ClientSettings(data="dir:/tmp", buffer="/proc/none/b"), "cannot hold a stream"),
    ],
)
async def test_what_cannot_be_is_named(settings: ClientSettings, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        async with open_batches(settings):
            pass


@pytest.mark.parametrize("option", ["", "?backlog"])
async def test_the_server_s_shape_counts_from_the_first_sample_on(tmp_path: Path, option: str) -> None:
    """Also if a sample of another shape came first, which would settle it otherwise."""
    (tmp_path / "odd.py").write_text(
        "import asyncio\n"
        "async def samples():\n"
        "    for x in [1.0] * 3, *[[1.0, 2.0]] * 20:\n"
        "        yield x, 0\n"
        "        await asyncio.sleep(0.001)\n"
    )
    settings = ClientSettings(
        data=f"python:{tmp_path}/odd.py:samples{option}",
        batch_min=2,
        directory=str(tmp_path),
    )
    async with open_batches(settings) as batches:
        batches.begin(replace(WELCOME, input=(2,)), FakeBackend())
        await batches.ready(1)
        x, _ = batches.take(4)
    assert x.shape[1:] == (2,)
    assert "of another shape" in (tmp_path / "quarantine-.jsonl").read_text()


@pytest.mark.parametrize(
    ("shards", "named"),
    [
        (["north"], "'north' must be NAME=DATA"),
        (["north="], "'north=' must be NAME=DATA"),
        (["a b=digits:"], "'a b=digits:' must be NAME=DATA"),
        (["a=digits:", "a=npz:x.npz"], "'a=npz:x.npz' must be NAME=DATA"),
        (["a=mqtt://here/topic"], "'a=mqtt://here/topic': a shard is stored data"),
        ([f"{number:0100}=digits:" for number in range(8)], "names of 8 shards take more than 800"),
    ],
)
def test_shards_that_cannot_be_are_named(shards: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_shards(ClientSettings(shards=shards))
    assert named in str(error.value)


def test_shards_come_behind_each_other_in_one_line() -> None:
    settings = ClientSettings.model_validate({"shards": "north=digits:, east=npz:e.npz"})
    assert parse_shards(settings) == {"north": "digits:", "east": "npz:e.npz"}
