"""`edgeflock status`, `plot` and `top` against a real server: what the screen shows is what they say."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgeflock.devices.emulation.clock import run_virtually
from edgeflock.operations.plot import draw, plot, watch_run
from edgeflock.operations.status import status
from edgeflock.operations.text import first_state
from edgeflock.operations.top import TopOptions, sources
from edgeflock.shared.errors import ConfigError, EdgeflockError
from edgeflock.shared.protocol.feed import encode
from edgeflock.shared.protocol.frames import Mark
from edgeflock.tui.sources import FeedClient, feed_client
from tests.hosting import hosting
from tests.integration.test_reconnect import link, update
from tests.library.command_line import edgeflock
from tests.tui.runs import frames, state
from tests.tui.server import serving


async def run(*arguments: str | Path) -> str:
    """What `edgeflock ...` prints, in a process of its own."""
    ended = await asyncio.to_thread(edgeflock, *map(str, arguments))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
async def test_status_as_json_has_what_the_screen_has(tmp_path: Path) -> None:
    async with (
        hosting(tmp_path, closed=True, viewer_token="look") as hosted,
        link(hosted.port, name="pi-1", identity=hosted.enrol("pi-1")) as device,
    ):
        await device.join()
        await device.push(update(1, 0))
        url, token = f"http://127.0.0.1:{hosted.port}", "--token=look"
        reported = json.loads(await run("status", url, token, "--json"))
        assert reported["version"] == 1, "as ever"
        assert reported["feed"]["overview"]["version"] == 1
        assert [row["name"] for row in reported["feed"]["devices"]] == ["pi-1"]
        assert reported["feed"]["events"][0]["kind"] == "joined"
        alone = json.loads(await run("status", url, token, "--device", "pi-1", "--json"))
        assert alone["device"]["updates"] == 1
        assert len(alone["history"]) == 1
        assert "pi-1" in await run("status", url, token, "--device", "pi-1")
        out = tmp_path / "figure.svg"
        assert (await run("plot", url, token, "--out", str(out), "--against", "updates")).strip() == str(out)
        assert "Staleness" in out.read_text()


async def test_a_server_without_a_feed_has_no_first_state() -> None:
    async with serving(token="secret") as server:
        assert await first_state(FeedClient(server.url, "wrong")) is None


async def test_a_server_that_hangs_gives_no_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_client, "SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EdgeflockError, match=f"^no answer in time from {url}: check that the"):
            await status(url)


async def test_a_live_server_is_watched_as_long_as_asked() -> None:
    async with serving(*list(frames(4, 5))) as server:
        assert (await watch_run(FeedClient(server.url, ""), 0)).overview.version == 0
    async with serving() as server:
        with pytest.raises(EdgeflockError, match="no frame from .* within 0.2 s"):
            await watch_run(FeedClient(server.url, ""), 0.2)


def test_and_no_longer() -> None:
    class Told(FeedClient):
        """A frame a second."""

        async def frames(self) -> AsyncIterator[bytes]:
            for frame in frames(4, 60):
                yield encode(frame)
                await asyncio.sleep(1)

        async def history(self) -> tuple[Mark, ...]:
            return ()

    assert len(run_virtually(watch_run(Told("http://127.0.0.1:1", ""), 5.5)).trend) == 6


@pytest.mark.slow
def test_equal_runs_make_equal_figures(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw(state(14, 60), "bytes", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    drawn = (tmp_path / "a.svg").read_text()
    assert "bytes that the server received and sent" in drawn
    assert all(f">{name}<" in drawn for name in ("up", "both ways", "received", "sent"))
    assert "Accuracy: last five " in drawn


def test_the_figure_leaves_out_what_would_flatten_it(tmp_path: Path) -> None:
    made = state(14, 60)
    wild = replace(made, evaluations=(made.evaluations[0]._replace(loss=9e6), *made.evaluations[1:]))
    draw(wild, "time", tmp_path / "wild.svg")
    drawn = (tmp_path / "wild.svg").read_text()
    assert "1e6" not in drawn
    assert all(f">{mark}<" in drawn for mark in ("0s", "10s", "60s")), "round"


def test_figures_of_a_recording_or_of_nothing(tmp_path: Path) -> None:
    done = edgeflock("plot", str(tmp_path / "nowhere"), "--out", "x.pdf", cwd=tmp_path)
    assert done.returncode == 2
    assert "--out x.pdf: must end in .png or .svg" in done.stderr
    done = edgeflock("plot", "http://127.0.0.1:9", "--against", "love", cwd=tmp_path)
    assert done.returncode == 2
    assert "'love' must be one of time, updates, bytes" in done.stderr


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("run-b", "run-b/journal.sqlite is damaged, or no journal"),
        ("empty", "empty holds no recording and no journal; name one, or a server's URL"),
        ("nofile.jsonl", "nofile.jsonl holds no recording and no journal; name one, or a server's URL"),
        ("flock.example.invalid", "no machine has the name in http://flock.example.invalid"),
    ],
)
def test_a_folder_is_its_journal_and_a_missing_file_is_no_host(
    source: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run-b", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "run-b" / "journal.sqlite").write_bytes(b"SQLite format 3\0")
    with pytest.raises(EdgeflockError, match=complaint):
        plot(source, "", "time", Path("x.png"), 0.0, as_json=False)


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        (TopOptions(["a", "b"], ["1", "2", "3"], 1, None, [], 1, ""), "given 3 times for 2 servers"),
        (TopOptions([], [], 1, None, [Path("no/such")], 1, ""), "no/such: cannot be read"),
    ],
)
def test_what_cannot_be_shown(plan: TopOptions, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        sources(plan, None)


def test_a_monitor_without_a_terminal_refuses_in_a_line(tmp_path: Path) -> None:
    done = edgeflock("top", "http://127.0.0.1:9", "--record", "kept.rec", cwd=tmp_path)
    assert done.returncode == 2
    assert "top needs a terminal, and there is none on standard input, output, error" in done.stderr
    assert not (tmp_path / "kept.rec").exists()


def test_each_server_has_its_token_or_all_one() -> None:
    made = sources(TopOptions(["vm:1", "vm:2"], ["one", "two"], 1, None, [], 1, ""), None)
    assert [source.name for source in made] == ["vm:1", "vm:2"]
