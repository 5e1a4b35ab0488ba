"""Requests of the server of several runs to the server of one run, over its Unix socket."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from edgeflock.server.connections.forwarding import ForwardedOrigin

OPERATOR = ForwardedOrigin("127.0.0.1", role="viewer", account="the server of all runs", is_internal=True)
"""The server itself, as a run sees it."""

_LONGEST_ANSWER = 1 << 26
"""Bytes of an answer. A device takes about a thousand."""

_CHUNK_BYTES = 1 << 18
"""Bytes of a file that are written at once."""

_HEAD = re.compile(rb"HTTP/1\.[01] (\d{3})")
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: (\d{1,18})\r\n", re.IGNORECASE)


async def ask(
    socket: str, path: str, origin: ForwardedOrigin = OPERATOR, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Return (HTTP status, body) of a GET. `headers` must hold no line breaks. Raises OSError.

    The caller limits its time.
    """
    async with _open_response(socket, path, origin, headers) as (status, _, reader):
        try:
            await reader.readexactly(_LONGEST_ANSWER)
            raise ConnectionError(f"{path} is answered with more than {_LONGEST_ANSWER} bytes")
        except asyncio.IncompleteReadError as whole:
            return status, whole.partial


async def save(socket: str, path: str, target: Path) -> int:
    """Write the body of a GET to a file, however large it is, and return the HTTP status.

    Only a whole body of the status 200 replaces the file. Raises OSError.
    """
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    async with _open_response(socket, path, OPERATOR, None) as (status, size, reader):
        if status == 200:
            try:
                with fresh.open("wb") as file:
                    while octets := await reader.read(_CHUNK_BYTES):
                        await asyncio.to_thread(file.write, octets)
                    if file.tell() != size:
                        raise ConnectionError(f"{path} is answered with {file.tell()} of {size} bytes")
                    await asyncio.to_thread(os.fsync, file.fileno())
                fresh.replace(target)
            finally:
                fresh.unlink(missing_ok=True)
    return status


@asynccontextmanager
async def _open_response(
    socket: str, path: str, origin: ForwardedOrigin, headers: Mapping[str, str] | None
) -> AsyncIterator[tuple[int, int, asyncio.StreamReader]]:
    """Send a GET. Yields (HTTP status, Content-Length or -1, the body that follows)."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {"Host": "localhost"}).items())
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        # HTTP/1.0: the answer is not chunked, and ends with the connection.
        writer.write(
            origin.encode() + f"GET {path} HTTP/1.0\r\n{lines}\r\n".encode("utf-8", "surrogateescape")
        )
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionError(f"{path} is not answered") from error
        found = _HEAD.match(head)
        if found is None:
            raise ConnectionError(f"{path} is not answered with HTTP")
        length = _CONTENT_LENGTH.search(head)
        yield int(found[1]), -1 if length is None else int(length[1]), reader
    finally:
        writer.close()


async def ask_for_object(
    socket: str, path: str, origin: ForwardedOrigin = OPERATOR, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return (HTTP status, JSON object) of a GET. Raises OSError."""
    status, body = await ask(socket, path, origin, headers)
    try:
        document = await asyncio.to_thread(json.loads, body)  # of thousands of devices, if there are so many
    except (ValueError, RecursionError) as error:
        raise ConnectionError(f"{path} is not answered with JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConnectionError(f"{path} is not answered with an object")
    return status, document
