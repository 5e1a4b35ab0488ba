"""The training page over HTTP: its headers, its libraries, and how an operator invites a browser."""

import gzip
import io
import re
import shutil
import tarfile
from pathlib import Path

import aiohttp
import pytest

from edgeflock.server.web import HEADERS, TRAINING_HEADERS, assets, libraries, training_assets
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.identity import digest_of
from tests.hosting import Hosted, hosting
from tests.integration.operator import ADMIN, operating

ON = "server.browsers=true"

WASM = b"\0asm" + bytes(1000)


def archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, octets in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(octets)
            tar.addfile(member, io.BytesIO(octets))
    return packed.getvalue()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and two archives that are the pinned ones."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {
        "onnxruntime-web": {
            "package/dist/ort.wasm.bundle.min.mjs": b"export default 1;",
            "package/dist/ort-wasm-simd-threaded.wasm": WASM,
            "package/dist/ort.all.js": b"not needed",
        },
        "msgpack": {"package/dist.esm/index.mjs": b"export {};", "package/dist.esm/utils/int.mjs": b"1;"},
    }
    for name, contents in files.items():
        octets = archive(contents)
        (tmp_path / f"{name}.tgz").write_bytes(octets)
        pinned = libraries.LIBRARIES[name]._replace(sha512=libraries._digest(octets))
        monkeypatch.setitem(libraries.LIBRARIES, name, pinned)
    return tmp_path


async def test_it_is_served_where_its_operator_wants_it(cache: Path) -> None:
    async with hosting(cache / "off") as hosted, operating(hosted.port) as visitor:
        for path in ("/train", "/train/page/main.js"):
            status, reported = await visitor.get(path)
            assert status == 404
            assert "server.browsers" in reported
    async with hosting(cache / "on", ON, closed=True) as hosted, aiohttp.ClientSession() as http:
        for path in ("/train", *(f"/train/{path}" for path in training_assets())):
            async with http.get(f"{hosted.url}{path}") as answer:
                assert answer.status == 200, path
                shown = {name: answer.headers[name] for name in TRAINING_HEADERS}
                assert shown == TRAINING_HEADERS
        for path in (
            "page/nothing.js",
            "page/..%2f..%2fassets.py",
            "device/vendor.mjs/..",
            "device/package.json",
        ):
            async with http.get(f"{hosted.url}/train/{path}") as answer:
                assert answer.status == 404, path


def test_only_this_page_compiles_and_nothing_is_inline_or_of_others() -> None:
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    policy = TRAINING_HEADERS["Content-Security-Policy"]
    assert policy == (
        "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert re.findall(r"'unsafe[^']*'|blob:|data:|\*|https?:", policy) == []
    page = training_assets()
    assert {"page/index.html", "page/main.js", "page/sources.js", "device/data/table.js"} <= page.keys()
    for name, asset in page.items():
        if not name.startswith("page/"):
            continue
        text = asset.octets.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", text), name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|https?://\w", text
        ), name
        for wanted in re.findall(r'"(?:\.\./\.\./)?assets/([^"]+)"', text):
            assert wanted in assets(), f"{name} asks for {wanted}"
        for wanted in re.findall(r'"\.\./(device/data/[^"]+)"', text):
            assert wanted in page, f"{name} asks for {wanted}"
        assert not re.search(r"[\"'`]/\w", text), f"{name} is at home at the root alone"


async def test_libraries_are_served_once_they_are_installed(cache: Path) -> None:
    vendor = "/train/device/vendor"
    async with hosting(cache / "run", ON) as hosted, aiohttp.ClientSession() as http:
        async with http.get(f"{hosted.url}{vendor}/msgpack/index.mjs") as answer:
            assert answer.status == 404
            assert (await answer.json())["detail"].endswith("edgeflock browsers install")
        libraries.install([cache / "msgpack.tgz", cache / "onnxruntime-web.tgz"])
        expected = {
            "msgpack/index.mjs": (b"export {};", "text/javascript"),
            "msgpack/utils/int.mjs": (b"1;", "text/javascript"),
            "onnxruntime-web/ort.wasm.bundle.min.mjs": (b"export default 1;", "text/javascript"),
            "onnxruntime-web/ort-wasm-simd-threaded.wasm": (WASM, "application/wasm"),
        }
        for path, (octets, kind) in expected.items():
            async with http.get(f"{hosted.url}{vendor}/{path}") as answer:
                assert (answer.status, answer.content_type, await answer.read()) == (200, kind, octets)
                etag = answer.headers["ETag"]
            async with http.get(f"{hosted.url}{vendor}/{path}", headers={"If-None-Match": etag}) as answer:
                assert answer.status == 304
        async with aiohttp.ClientSession(auto_decompress=False) as raw:
            async with raw.get(f"{hosted.url}{vendor}/{path}") as answer:
                assert answer.headers["Content-Encoding"] == "gzip"
                assert gzip.decompress(await answer.read()) == WASM
            shutil.rmtree(libraries.LIBRARIES["onnxruntime-web"].path)
            async with raw.get(f"{hosted.url}{vendor}/{path}") as answer:
                assert gzip.decompress(await answer.read()) == WASM, "it is in memory, once for all readers"
        (cache / "secret.mjs").write_text("secret")
        for path in (
            "onnxruntime-web/ort.all.js",
            "msgpack/..%2f..%2f..%2f..%2fsecret.mjs",
            "msgpack/",
            "other/a.mjs",
        ):
            async with http.get(f"{hosted.url}{vendor}/{path}") as answer:
                assert answer.status == 404, path


def test_an_archive_that_is_not_the_pinned_one_installs_nothing(cache: Path) -> None:
    other = cache / "other.tgz"
    other.write_bytes(archive({"package/dist/ort.wasm.bundle.min.mjs": b"evil"}))
    for given, reason in (
        ([other], "none of the files is onnxruntime-web"),
        ([cache / "onnxruntime-web.tgz"], "none of the files is @msgpack"),
        ([cache / "absent.tgz"], "No such file"),
    ):
        with pytest.raises(ConfigError, match=reason):
            libraries.install(given)
    assert "browsers install" in libraries.missing_libraries()
    libraries.install([cache / "msgpack.tgz", cache / "onnxruntime-web.tgz"])
    libraries.install([cache / "msgpack.tgz", cache / "onnxruntime-web.tgz"])
    assert libraries.missing_libraries() == ""


async def invited(
    hosted: Hosted, body: dict[str, object], token: str = ADMIN
) -> tuple[int, dict[str, object]]:
    async with aiohttp.ClientSession() as http:
        headers = {"Authorization": f"Bearer {token}", "Origin": hosted.url}
        async with http.post(f"{hosted.url}/v1/invitation", json=body, headers=headers) as answer:
            return answer.status, await answer.json()


async def test_an_admin_invites_browsers(cache: Path) -> None:
    async with hosting(cache / "run", ON, closed=True, admin_token=ADMIN) as hosted:
        for reusable in (False, True):
            status, reported = await invited(hosted, {"reusable": reusable})
            assert status == 200
            page, _, token = str(reported["page"]).partition("#token=")
            assert page == f"{hosted.url}/train"
            assert hosted.register.identify(token).role == "joining"
            made = hosted.register.tokens[digest_of(token)]
            assert made.reusable is reusable
            assert made.expires is not None
        pytest.importorskip("segno", reason="segno is not installed: no QR code")
        code = reported["code"]
        assert isinstance(code, list)
        assert {len(row) for row in code} == {len(code)}
        assert set("".join(code)) == {"0", "1"}
        assert "the server's own machine" in str(reported["hindrance"])
        assert (await invited(hosted, {"reusable": "yes"}))[0] == 400
        assert (await invited(hosted, {"reused": True}))[0] == 400
        assert (await invited(hosted, {}, hosted.enrol("pi").credential))[0] == 403
        audit = (cache / "run" / "audit.jsonl").read_text()
        assert "made the token" in audit
        assert token not in audit


async def test_nobody_is_invited_to_a_page_that_is_not_there(cache: Path) -> None:
    async with hosting(cache / "run", closed=True, admin_token=ADMIN) as hosted:
        before = dict(hosted.register.tokens)
        assert (await invited(hosted, {}))[0] == 409
        assert hosted.register.tokens == before
