"""Who may look and who may act, and where the secrets lie."""

import json
import stat
from pathlib import Path

import pytest

from edgeflock.server.hosting import open_run
from edgeflock.server.operations.roles import Roles
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import parse
from tests.hosting import hosting
from tests.integration.operator import ADMIN, operating
from tests.integration.test_reconnect import link

READING = ("/v1/status", "/v1/evaluations", "/metrics", "/v1/devices/pi")
ACTING: tuple[tuple[str, dict[str, float] | None], ...] = (
    ("/v1/devices/pi/pause", {}),
    ("/v1/devices/pi/resume", {}),
    ("/v1/devices/pi/drop", {}),
    ("/v1/learning_rate", {"value": 0.5}),
    ("/v1/checkpoint", None),
)


VIEWER = "secret of the viewers"


@pytest.mark.parametrize("token", ["run", ""], ids=["closed", "open"])
async def test_viewers_look_and_admins_act(token: str, tmp_path: Path) -> None:
    async with hosting(tmp_path, token=token, admin_token=ADMIN, viewer_token=VIEWER) as hosted:
        async with link(hosted.port, token=token) as device:
            await device.join()
        async with operating(hosted.port, VIEWER) as viewer, operating(hosted.port) as admin:
            for path in READING:
                assert (await viewer.get(path))[0] == 200
                assert (await admin.get(path))[0] == 200
            for path, body in ACTING:
                status, answer = await viewer.post(path, body)
                assert (status, answer["code"]) == (403, "forbidden")
            assert hosted.registry.devices["pi"].connection.order is None
            assert hosted.engine.parameters.regime.learning_rate == 0.05
            for path, body in ACTING:
                assert (await admin.post(path, body))[0] == 200


async def test_devices_are_told_of_the_run_and_not_of_each_other(tmp_path: Path) -> None:
    async with hosting(tmp_path, token="run", admin_token=ADMIN, viewer_token=VIEWER) as hosted:
        async with link(hosted.port, name="somebody-elses", token="run") as device:
            await device.join()
        async with operating(hosted.port, "run") as device:
            status, told = await device.get("/v1/status")
            assert status == 200
            assert json.loads(told).keys() == {
                "run", "state", "diverged", "model", "parameters", "version", "updates_target",
            }  # fmt: skip
            status, evaluations = await device.get("/v1/evaluations")
            assert (status, evaluations) == (200, "[]")
            assert "somebody-elses" not in told
            for path in ("/v1/devices/somebody-elses", "/v1/feed", "/metrics", "/v1/nothing"):
                status, answer = await device.get(path)
                assert status == 403
                assert "viewer-token" in answer
            for path, body in ACTING:
                assert (await device.post(path, body))[0] == 403


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer", "bEaReR", "Bearer  "])
def test_a_scheme_is_written_in_any_case(scheme: str) -> None:
    roles = Roles("run", "admin", "viewer")
    known = {"run": "device", "admin": "admin", "viewer": "viewer", "other": None, "": None}
    assert {token: roles.of(f"{scheme} {token}") for token in known} == known
    assert roles.of(f"{scheme}run") is None or scheme.endswith(" ")


async def test_strangers_do_neither(tmp_path: Path) -> None:
    async with hosting(tmp_path, token="run", admin_token=ADMIN) as hosted:
        async with operating(hosted.port, ADMIN[:-1]) as stranger, operating(hosted.port, "") as nobody:
            for one in (stranger, nobody):
                for path in (*READING, "/v1/feed", "/nothing"):
                    assert (await one.get(path))[0] == 401
                for path, body in ACTING:
                    assert (await one.post(path, body))[0] == 401
                assert (await one.get("/livez"))[0] == (await one.get("/readyz"))[0] == 200


def test_without_an_admin_token_nobody_is_an_admin() -> None:
    roles = Roles("", "")
    assert {roles.of(header) for header in ("", "Bearer ", "Bearer x")} == {"viewer"}
    assert Roles("run", "").of("Bearer ") is None


def test_the_admin_token_is_made_up_once_and_for_its_owner_only(tmp_path: Path) -> None:
    config = parse(overrides=[f"run.directory={tmp_path}", "run.open=true", "model.data="])
    kept = tmp_path / "admin-token"
    with open_run(config) as opened:
        secret = opened.admin_token
        assert kept.read_text() == secret + "\n"
        assert len(secret) > 20
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert opened.token == ""
    with open_run(config) as again:
        assert again.admin_token == secret
    same = parse(overrides=[f"run.directory={tmp_path}", "run.token=x", "run.admin_token=x", "model.data="])
    for _ in range(2):  # what failed has let go
        with pytest.raises(ConfigError, match="run.admin_token is run.token"), open_run(same):
            pass


def test_the_viewer_token_is_nobody_elses(tmp_path: Path) -> None:
    settings = [f"run.directory={tmp_path}", "run.token=x", "model.data="]
    same = parse(overrides=[*settings, "run.viewer_token=x"])
    with pytest.raises(ConfigError, match="run.viewer_token is run.token"), open_run(same):
        pass
    with open_run(parse(overrides=settings)) as opened:
        kept = tmp_path / "viewer-token"
        assert kept.read_text() == opened.viewer_token + "\n"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
