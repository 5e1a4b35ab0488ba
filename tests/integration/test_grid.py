"""All routes and all records, by all roles, with all credentials that are good for nothing.

Two tables say what is let in. A route or a record that is in neither fails.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
from yarl import URL

from edgeflock.client.identity import ClientIdentity
from edgeflock.client.transport.credentials import renew
from edgeflock.server.app import create_app
from edgeflock.server.hosting.model import ModelSetup
from edgeflock.server.hosting.run import HostedRun
from edgeflock.server.http.roles import Access
from edgeflock.server.identity import Audit, Role
from edgeflock.shared.identity import Token
from edgeflock.shared.protocol.messages import (
    TAGS,
    Challenge,
    Credential,
    Goodbye,
    Hello,
    Model,
    Over,
    Pull,
    Receipt,
    Record,
    Refusal,
    Samples,
    SecureSum,
    Stop,
    Task,
    Telemetry,
    Update,
    Welcome,
)
from tests.hosting import Hosted, hosting
from tests.integration.foreign_client import (
    CREDENTIAL,
    GOODBYE,
    MODEL,
    PULL,
    RECEIPT,
    REFUSAL,
    SAMPLES,
    TELEMETRY,
    WELCOME,
    Device,
    connected,
    pack,
    proved,
)
from tests.integration.operator import ADMIN
from tests.integration.scene import update
from tests.integration.test_reconnect import link

ROLES: tuple[Role, ...] = ("device", "viewer", "admin", "gateway")

ROUTES = {
    "GET /v1/session": "device",
    "POST /v1/join": "joining device",
    "GET /v1/status": "device viewer admin",
    "GET /v1/evaluations": "device viewer admin",
    "GET /v1/model": "device viewer admin",
    "GET /v1/model.onnx": "device viewer admin gateway",
    "GET /v1/model.safetensors": "device viewer admin gateway",
    "GET /v1/start": "device viewer admin",
    "GET /v1/base": "device viewer admin gateway",
    "GET /v1/graphs/step": "device viewer admin gateway",
    "GET /v1/gateway": "gateway",
    "GET /v1/feed": "viewer admin",
    "GET /v1/devices/pi": "viewer admin",
    "GET /metrics": "viewer admin",
    "POST /v1/devices/pi/pause": "admin",
    "POST /v1/devices/pi/resume": "admin",
    "POST /v1/devices/pi/drop": "admin",
    "POST /v1/devices/pi/pardon": "admin",
    "POST /v1/learning_rate": "admin",
    "POST /v1/checkpoint": "admin",
    "POST /v1/rollback": "admin",
    "GET /v1/history": "viewer admin",
    "GET /v1/login": "viewer admin",
    "POST /v1/login": "anybody",
    "POST /v1/logout": "anybody",
    "GET /": "anybody",
    "GET /assets/pi": "anybody",
    "POST /v1/invitation": "admin",
    "GET /train": "anybody",
    "GET /train/{path}": "anybody",
    "GET /livez": "anybody",
    "GET /readyz": "anybody",
}
"""Who may ask; "joining" is who shows a device's token."""

SLOW = {"GET /v1/graphs/step"}
"""Made by torch, if it is let in: test_served.py."""

UNEXPECTED = REFUSAL, "unexpected-record"

RECORDS: dict[type[Record], tuple[bytes, tuple[int, str]]] = {
    Hello: (b"", UNEXPECTED),
    Pull: (pack([PULL, None]), (MODEL, "")),
    Update: (update(sequence=1, base=0), (RECEIPT, "")),
    Telemetry: (pack([TELEMETRY, {}]), (MODEL, "")),
    Goodbye: (pack([GOODBYE, "its owner wants it"]), (MODEL, "")),
    Samples: (pack([SAMPLES, 1, False, bytes(4), True, bytes(4)]), UNEXPECTED),
    Welcome: (b"", UNEXPECTED),
    Model: (b"", UNEXPECTED),
    Receipt: (b"", UNEXPECTED),
    Refusal: (b"", UNEXPECTED),
    Stop: (b"", UNEXPECTED),
    Task: (b"", UNEXPECTED),
    Over: (b"", UNEXPECTED),
    Credential: (pack([CREDENTIAL, "efd1."]), UNEXPECTED),
    Challenge: (b"", UNEXPECTED),
    SecureSum: (pack([TAGS[SecureSum], 1, b"", b""]), UNEXPECTED),
}
"""What a device sends (empty: the bare tag), and what it is answered once it is let in; behind a Telemetry,
which has no answer, comes a Pull. The run shares no samples."""


@dataclass(frozen=True)
class People:
    """Secrets: a good one of each role, and all kinds that are not."""

    good: dict[str, str]
    bad: dict[str, str]
    pi: ClientIdentity
    other: ClientIdentity


@asynccontextmanager
async def people(hosted: Hosted) -> AsyncIterator[People]:
    register = hosted.register
    roles = {role: register.create(role, reusable=True).text for role in ROLES}
    pi, other, rotated, gone = (hosted.enrol(name) for name in ("pi", "other", "rotated", "gone"))
    register.revoke("gone")
    register.rotate("rotated")
    async with aiohttp.ClientSession() as http:
        fresh = await renew(http, rotated, URL(rotated.server))
    async with link(hosted.port, "rotated", fresh) as device:
        await device.join()
    forgotten = register.create("admin")
    register.delete(register.tokens[forgotten.digest].id)
    expired = {f"expired {role}": register.create(role, seconds=1e-9).text for role in ROLES}
    yield People(
        {
            "joining": roles["device"],
            "device": pi.credential,
            "viewer": roles["viewer"],
            "admin": roles["admin"],
            "gateway": roles["gateway"],
        },
        {
            "none": "",
            "wrong": Token.new().text,
            "no token": "password",
            "revoked": gone.credential,
            "rotated": rotated.credential,
            "taken back": forgotten.text,
            **expired,
        },
        pi,
        other,
    )


def routes(hosted: Hosted) -> set[str]:
    """Every one of the application. Each says beside it who may use it."""
    app = create_app(
        hosted.config, HostedRun("x", hosted.register, Audit(Path()), hosted.engine, ModelSetup(), [], [])
    )
    for route in app.router.routes():
        assert isinstance(getattr(route.handler, "access", None), Access), route
    return {
        f"{route.method} {route.resource.canonical.replace('{name}', 'pi').replace('{kind}', 'step')}"
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


async def allowed(http: aiohttp.ClientSession, port: int, route: str, secret: str) -> bool:
    """Whether a request is let in, whatever comes of it then."""
    method, path = route.split()
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    async with http.request(method, f"http://127.0.0.1:{port}{path}", headers=headers) as response:
        if response.status in (401, 403) and route != "POST /v1/login":  # which is asked what it is for
            answer = await response.json()
            assert answer["code"] == {401: "unauthorized", 403: "forbidden"}[response.status]
            assert answer["detail"]
            return False
        return True


async def test_every_route_lets_in_its_roles_and_nobody_else(tmp_path: Path) -> None:
    async with AsyncExitStack() as opened:
        hosted = await opened.enter_async_context(hosting(tmp_path, closed=True))
        cast = await opened.enter_async_context(people(hosted))
        http = await opened.enter_async_context(aiohttp.ClientSession())
        assert routes(hosted) == ROUTES.keys()
        for route, roles in ROUTES.items():
            everybody = roles == "anybody"
            for role, secret in cast.good.items():
                if not (route in SLOW and role in roles.split()):
                    let_in = await allowed(http, hosted.port, route, secret)
                    assert let_in == (everybody or role in roles.split()), (route, role)
            for kind, secret in cast.bad.items():
                assert await allowed(http, hosted.port, route, secret) == everybody, (route, kind)


async def test_an_open_run_lets_everybody_take_part_and_look_and_nobody_act(tmp_path: Path) -> None:
    async with hosting(tmp_path, admin_token=ADMIN) as hosted, aiohttp.ClientSession() as http:
        async with link(hosted.port) as device:
            await device.join()
        for route, roles in ROUTES.items():
            let_in = route not in SLOW and await allowed(http, hosted.port, route, "")
            looks = route.startswith("GET ") or roles == "anybody"
            assert let_in == (looks and route not in SLOW), route
            if roles == "admin":
                assert await allowed(http, hosted.port, route, ADMIN), route


async def test_every_record_is_taken_from_its_devices_and_from_nobody_else(tmp_path: Path) -> None:
    async with hosting(tmp_path, closed=True) as hosted, people(hosted) as cast:
        assert RECORDS.keys() == TAGS.keys()
        pi = cast.pi
        for kind, (octets, expected) in RECORDS.items():
            record = octets or pack([TAGS[kind]])
            # Who has no credential of a device has no session to send it in.
            for what, secret in (cast.bad | cast.good).items():
                async with connected(hosted.port) as device:
                    status, _ = await device.upgrade(secret)
                    good = 101 if what == "device" else 403 if what in cast.good else 401
                    assert status == good, (kind, what)
            # Before its Hello a device may send no other,
            if kind is not Hello:
                async with connected(hosted.port) as device:
                    await device.upgrade(pi.credential)
                    device.send(record)
                    assert tuple((await device.answer())[:2]) == UNEXPECTED, kind
            # nor after one that says another device's name, or proves another key.
            for identity in (replace(cast.other, name="pi"), replace(pi, key=cast.other.key)):
                async with speaking(hosted, identity) as (device, answer):
                    device.send(record)
                    assert answer[:2] == [REFUSAL, "unauthorized"], kind
                    assert await device.closed() == (4401, "unauthorized"), kind
            async with speaking(hosted, pi) as (device, answer):
                assert answer[0] == WELCOME
                device.send(record)
                if kind in (Telemetry, Goodbye):  # they have no answer
                    device.send(pack([PULL, None]))
                reported = await device.answer()
                assert (reported[0], reported[1] if reported[0] == REFUSAL else "") == expected, kind
        assert hosted.engine.published.version == 1


@asynccontextmanager
async def speaking(hosted: Hosted, who: ClientIdentity) -> AsyncIterator[tuple[Device, list[object]]]:
    async with proved(hosted.port, who.name, who.key, who.credential, who.realm) as (device, answer):
        yield device, answer
