"""Polls JSON from a web server.

    http://host/path?poll=10             a GET every ten seconds; the default is 1
    https://host/path                    over TLS (uri.py)
    ...?items=data.readings              the path of the list of samples

An answer is a sample, an object, or a list of them. The options of messages name its fields
(client/data/messages.py). Other options go to the server: http://host/v1?station=7&poll=60 asks for
/v1?station=7. With user@host and a password (uri.py) it logs in (Basic); a password without a user is a
token (Bearer).

Samples of the previous answer are skipped: objects with the same key, or without keys with all values equal.
So a sensor that may repeat a reading should include a time or a key.

Redirects are not followed: a person should decide on another server, or on access to this device's private
network. An answer longer than ANSWER_BYTES is broken.
"""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from edgeflock.client.data.messages import value_at
from edgeflock.client.data.reading import OPTIONS, MessageReader
from edgeflock.client.data.records import Broken, Skipped, StreamChunk
from edgeflock.client.data.uri import PASSWORD, TLS, Uri, password, tls
from edgeflock.shared.protocol.backoff import back_off, failure_reason, permanent_error

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

log = logging.getLogger(__name__)

ANSWER_BYTES = 1 << 22

ANSWER_ITEMS = 4096
"""Maximum number of samples in an answer."""

POLL = 1.0
"""Default seconds between two requests (?poll=)."""

ANSWER_SECONDS = 30.0
"""The longest wait for a whole answer."""

_LOGIN = ": log in with http://USER@HOST/path?password_file=PATH; a password without a user is a token"

_REMEDIES = {401: _LOGIN, 403: _LOGIN, 404: ": correct the path"}
"""What to do about an answer of this status."""


class _BadStatus(OSError):
    """An answer of another status than 200."""


def poll_http(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    """Return the samples in the server's answers. Raises ConfigError before it asks."""
    # Imported here, since emulated fleets import this file and need no network.
    from yarl import URL

    own, rest = uri.split("poll", "items", *OPTIONS, *PASSWORD, *TLS)
    reader, pause = MessageReader(uri, tally), uri.seconds("poll", POLL, least=0.01)
    context = tls(uri) or True
    try:
        url = URL(f"{uri.scheme}:{uri.place}")
        headers = _login(url.user, password(uri) or url.password)  # sent to this host only: see redirects
        if not url.host:
            raise ValueError("there is no host")
        url = url.with_user(None).with_query(rest.options)
    except ValueError as error:
        raise uri.error(f"must be {uri.scheme}://host/path: {error}") from error
    return _poll(url, headers, context, reader, tally, pause, own.get("items"))


async def _poll(
    url: "URL",
    headers: Mapping[str, str],
    context: Any,
    reader: MessageReader,
    tally: Skipped,
    pause: float,
    path: str | None,
) -> AsyncGenerator[StreamChunk, None]:
    import aiohttp

    address = f"{url.origin()}{url.path}"  # its query may be secret
    delays, seen = back_off(Random()), frozenset[str]()
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers, auto_decompress=False) as http:
        while True:
            delay = pause
            try:
                body = await _answer(http, url, context)
                delays = back_off(Random())
                items = _items(body, path)
                names = [_name(item, reader.fields.key) for item in items]
                new = [item for item, name in zip(items, names, strict=True) if name not in seen]
                seen = frozenset(names)
                for chunk in reader.chunks((item, None) for item in new):
                    yield chunk
            except Broken as broken:
                tally.add(broken.kind, f"{address}: {broken.detail}")
            except (OSError, aiohttp.ClientError, TimeoutError) as error:
                if hopeless := permanent_error(address, error):
                    raise hopeless from error
                delay = max(pause, next(delays))
                is_answer = isinstance(error, _BadStatus)
                reason = f"{address} {error}" if is_answer else failure_reason(address, error)
                log.warning("%s; trying again in %.1f s", reason, delay)
            await asyncio.sleep(delay)


async def _answer(http: "aiohttp.ClientSession", url: "URL", context: Any) -> bytes:
    """Return the body of the answer. Raises Broken if it is not valid, and the connection's errors."""
    # A compressed answer might expand to any length.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with http.get(url, headers=headers, ssl=context, allow_redirects=False) as response:
        if 300 <= response.status < 400:
            target = response.headers.get("Location", "nowhere")
            raise Broken("a redirect", f"leads to {target[:200]!r}; if that is right, name it as the source")
        if response.status != 200:  # aiohttp's own error would include the query
            raise _BadStatus(f"answers {response.status}{_REMEDIES.get(response.status, '')}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise Broken("compressed", "the answer is, though the request excludes that")
        body = bytearray()
        async for part in response.content.iter_chunked(1 << 16):
            body += part
            if len(body) > ANSWER_BYTES:
                raise Broken("too large", f"an answer is longer than {ANSWER_BYTES} bytes")
        return bytes(body)


def _items(body: bytes, path: str | None) -> list[Mapping[str, Any]]:
    """Return the samples in an answer. Raises Broken."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Broken("unreadable", f"no JSON: {error}") from error
    for name in path.split(".") if path else ():
        if not isinstance(value, dict) or name not in value:
            raise Broken("incomplete", f"there is no {path} (items=)")
        value = value[name]
    items = value if isinstance(value, list) else [value]
    if len(items) > ANSWER_ITEMS:
        raise Broken("too large", f"{len(items)} samples in an answer; at most {ANSWER_ITEMS} are taken")
    return [item if isinstance(item, dict) else {} for item in items]


def _name(item: Mapping[str, Any], key: str) -> str:
    """Return an item's identity: its key, or else all of it."""
    named = value_at(item, key)
    return json.dumps(item if named is None else named, sort_keys=True)


def _login(user: str | None, secret: str | None) -> dict[str, str]:
    if user:
        pair = f"{user}:{secret or ''}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {"Authorization": f"Bearer {secret}"} if secret else {}
