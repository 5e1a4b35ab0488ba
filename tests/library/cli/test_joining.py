"""Joining from the command line: tokens, devices, and what a device keeps."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest

from edgeflock.cli.options import labels_of, seconds_of
from edgeflock.client.identity import identity_of, load_identity
from edgeflock.server.identity import Register
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import Token
from edgeflock.shared.settings.config import parse
from tests.hosting import hosting
from tests.library.command_line import edgeflock


async def say(*words: str, code: int = 0) -> str:
    """What the command prints, which ends with `code`: on stderr, if that is not 0."""
    done = await asyncio.to_thread(edgeflock, *words)
    assert done.returncode == code, done.stderr
    return str(done.stderr if code else done.stdout)


async def test_from_a_token_to_a_revoked_device(tmp_path: Path) -> None:
    run, place = str(tmp_path / "run"), tmp_path / "identity.json"
    async with hosting(tmp_path / "run", closed=True, with_tls=True) as hosted:
        hosted.register.store_address(hosted.url, hosted.register.pin)
        line = await say("token", "create", run, "--label", "site=roof", "--expires", "10m")
        assert line.startswith(f"edgeflock client join {hosted.url} ef1.")
        assert json.loads(await say("device", "list", run, "--json")) == {"devices": []}
        told_line = await say("device", "list", run)
        assert (
            told_line == f"no device has joined yet; edgeflock token create {run} prints the line for one\n"
        )
        words = line.split()[1:]
        await say(*words, "--name", "pi-7", "--identity", str(place))
        assert load_identity(place).name == "pi-7"
        assert "has joined" in await say(*words, "--identity", str(place), code=2)
        assert "was for one device" in await say(*words, "--identity", f"{place}.2", code=3)
        await say("device", "label", "pi-7", "owner=me", "desk=3", "--directory", run)
        assert "must be NAME=VALUE" in await say("device", "label", "pi-7", "=", "--directory", run, code=2)
        await say("device", "label", "pi-7", "desk=", "--directory", run)
        (reported,) = json.loads(await say("device", "list", run, "--json"))["devices"]
        assert reported["labels"] == {"site": "roof", "owner": "me"}
        assert reported["quarantined"] is None
        hosted.register.quarantine("pi-7", "reasons")
        assert "pi-7  in quarantine until 2" in await say("device", "list", run)
        assert await say("device", "release", "pi-7", run) == "pi-7 is released\n"
        assert await say("device", "release", "pi-7", run) == "pi-7 is not in quarantine\n"
        await say("device", "revoke", "pi-7", run)
        assert "pi-7  revoked" in await say("device", "list", run)
        assert "no device 'pi-8' has joined" in await say("device", "revoke", "pi-8", run, code=2)
        viewer = json.loads(await say("token", "create", run, "--role", "viewer", "--json"))
        told_line = await say(*words[:3], viewer["token"], "--identity", f"{place}.2", code=3)
        assert "this needs a device's token (edgeflock token create)" in told_line
        secret = tmp_path / "viewer-token"
        secret.write_text(viewer["token"])
        secret.chmod(0o600)
        status = json.loads(await say("status", hosted.url, "--token-file", str(secret), "--json"))
        assert status["version"] == 0
        assert viewer["token"] not in await say("token", "list", run)
        await say("token", "revoke", viewer["id"], run)
        async with asyncio.timeout(30):  # the server, another process, looks now and then
            while any(token.id == viewer["id"] for token in hosted.register.tokens.values()):
                await asyncio.sleep(0.01)
        assert "does not know this token" in await say(
            "status", hosted.url, "--token-file", str(secret), code=3
        )
    did = [json.loads(text)["did"] for text in (tmp_path / "run" / "audit.jsonl").read_text().splitlines()]
    assert did[1:5] == [
        "'pi-7' joined",
        "labelled 'pi-7' owner=me desk=3",
        "labelled 'pi-7' desk=",
        "released 'pi-7'",
    ]
    assert did[0].startswith("made the token ")


async def test_a_code_opens_the_training_page(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    async with hosting(tmp_path / "run", closed=True) as hosted:
        hosted.register.store_address(hosted.url, b"")
        reported = json.loads(await say("token", "create", run, "--json"))
        assert reported["page"] == f"{hosted.url}/train#token={reported['token']}"
        assert "--role is viewer" in await say("token", "create", run, "--qr", "--role", "viewer", code=2)
        done = await asyncio.to_thread(edgeflock, "token", "create", run, "--qr", lacking="segno")
        assert (done.returncode, "--qr needs segno: pip install" in done.stderr) == (2, True)
        pytest.importorskip("segno", reason="segno is not installed: no QR code")
        *code, page = (await say("token", "create", run, "--qr", "--url", "https://f.example/")).splitlines()
        assert page.startswith("https://f.example/train#token=ef1.")
        assert len(code) > 15
        assert {len(line) for line in code} == {len(code[0])}
        done = await asyncio.to_thread(edgeflock, "token", "create", run, "--qr")
        assert done.stdout.splitlines()[-1].startswith(hosted.url)
        assert done.stderr.startswith("Note: only browsers on the server's own machine")


def test_a_folder_of_several_runs_prints_a_line_for_each(tmp_path: Path) -> None:
    """A token of the server itself lets no device join: it names no run."""
    with closing(Register(tmp_path)) as server:
        server.store_address("http://127.0.0.1:8470", b"")
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").touch()
        (tmp_path / name).mkdir()
        with closing(Register(tmp_path / name)) as register:
            register.store_address(f"http://127.0.0.1:8470/v1/runs/{name}", b"")
    done = edgeflock("token", "create", str(tmp_path))
    for name, line in zip(("one", "two"), done.stdout.splitlines(), strict=True):
        command, secret = line.rsplit(" ", 1)
        assert command == f"edgeflock client join http://127.0.0.1:8470/v1/runs/{name}"
        with closing(Register(tmp_path / name)) as register:
            assert register.tokens[Token.parse(secret).digest].role == "device"
    assert len(edgeflock("token", "create", str(tmp_path), "--role", "viewer").stdout.splitlines()) == 1
    done = edgeflock("device", "list", str(tmp_path))
    assert (done.returncode, f"name one, e.g. {tmp_path / 'one'}" in done.stderr) == (2, True)


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    done = edgeflock("token", "create", str(tmp_path))
    assert (
        done.returncode,
        "has no run; name the folder of one, as in edgeflock token list DIR" in done.stderr,
    ) == (2, True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("90m", 5400), ("24h", 86400), ("7d", 604800), ("never", None)]
)
def test_times_are_read(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "0d", "1w", "1.5h", "9999999d", "٣d"])
def test_times_that_are_none_are_told(text: str) -> None:
    with pytest.raises(ConfigError, match="--expires"):
        seconds_of(text)


@pytest.mark.parametrize("text", ["", "a", "=b", "a=\n", "a=b c", "a=" + "b" * 100])
def test_labels_that_are_none_are_told(text: str) -> None:
    with pytest.raises(ConfigError, match="must be NAME=VALUE"):
        labels_of([text])


async def test_what_was_joined_is_not_mistaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert identity_of(parse().client)[0] is None
    async with hosting(tmp_path / "run", closed=True) as hosted:
        token, url = hosted.register.create("device", graph=bytes(32)).text, hosted.url
        await say("client", "join", url, token, "--name", "pi")
    identity, place = identity_of(parse().client)
    assert identity == load_identity(place)
    assert identity is not None
    assert Token.parse(token).graph == identity.graph
    assert identity_of(parse(overrides=[f"client.server={url}/"]).client)[0] == identity
    assert identity_of(parse(overrides=["client.server=http://127.0.0.1:1"]).client)[0] is None
    named = f"client.identity={place}"
    for settings, why in (
        ([named, "client.server=http://127.0.0.1:1"], "leave one of them out"),
        (["client.name=other"], "joined as 'pi'"),
        ([f"client.graph_digest={'ab' * 32}"], "client.graph_digest"),
    ):
        with pytest.raises(ConfigError, match=why):
            identity_of(parse(overrides=settings).client)
