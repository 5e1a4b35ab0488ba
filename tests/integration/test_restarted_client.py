"""A client that is killed while an update is under way: the next one sends it, and it counts once."""

import asyncio
from pathlib import Path

import numpy as np

from edgeflock.client.backends.torch import TorchBackend
from edgeflock.client.training.spool import Spool
from edgeflock.shared.protocol import wire
from edgeflock.shared.protocol.messages import Update
from tests.hosting import RUN, hosting
from tests.library.command_line import running
from tests.proxy import proxying

MODULE = "edgeflock.client.zoo:DigitsCNN"


async def test_killed_before_and_after_its_update_arrives_it_counts_once(tmp_path: Path) -> None:
    """kill -9 of a real client, whose update the server has not got, then of one whose receipt is lost."""
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (60, 1, 8, 8), np.uint8), random.integers(0, 10, 60)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    layout = TorchBackend(MODULE, "cross_entropy").layout
    kept, log, run = tmp_path / "kept", tmp_path / "log", [f"model.module={MODULE}", "end.updates=4"]

    def is_there() -> bool:
        return any(kept.glob("*.update"))

    async with hosting(tmp_path / "run", *run, layout=layout) as hosted, proxying(hosted.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        given = {"server": url, "name": "pi", "data": f"npz:{tmp_path}/data.npz", "directory": kept}
        settings = [part for key, value in given.items() for part in ("--set", f"client.{key}={value}")]
        client = ("client", "--backend", "torch", *settings)

        # What is sent once an update is kept never arrives.
        proxy.cut_upstream = lambda chunk: is_there()
        with running(*client, cwd=tmp_path, said=log):
            while not is_there():
                await asyncio.sleep(0.01)
        proxy.cut_all()  # what it had sent, but the proxy not yet read
        assert hosted.engine.published.version == 0
        lost = Spool(kept, url, "pi").load(RUN, layout.digest, 1 << 20)
        assert lost is not None
        assert (lost.sequence, lost.base) == (1, 0)

        # It is sent again; of the one after it the receipt never arrives.
        proxy.cut_upstream = lambda chunk: False
        proxy.cut_downstream = lambda chunk: hosted.engine.published.version >= 2
        with running(*client, cwd=tmp_path, said=log):
            while hosted.engine.published.version < 2:
                await asyncio.sleep(0.01)
        assert is_there()

        proxy.cut_downstream = lambda chunk: False
        with running(*client, cwd=tmp_path, said=log) as process:
            while process.is_alive():
                await asyncio.sleep(0.01)
        assert process.exitcode == 0
        assert not is_there()

        updates = [wire.decode(one.frame) for one in hosted.journal.updates(0, 4)]
        theta = hosted.engine.theta()
    said = log.read_text()
    assert "sent update 1 from before the restart" in said
    assert "update 2 from before the restart had arrived" in said
    first, *rest = updates
    assert isinstance(first, Update)
    assert [update.sequence for update in rest if isinstance(update, Update)] == [2, 3, 4]
    assert (first.base, first.indices, first.values) == (0, lost.indices, lost.values)
    async with hosting(tmp_path / "run", *run, layout=layout) as hosted:
        version, again = hosted.engine.theta()
    assert (version, again.tobytes()) == (theta[0], theta[1].tobytes())
