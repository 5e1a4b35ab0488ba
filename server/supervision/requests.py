"""Requests of the server of several runs to the server of one run, over its Unix socket."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from edgeflock.server.connections.forwarding import ForwardedOrigin

OPERATOR = ForwardedOrigin("127.0.0.1", role="viewer", account="the server of all runs", is_internal=True)
"""The server itself, as a run sees it."""

_LONGEST_ANSWER = 1 << 26
"""Bytes of an answer. A device takes about a thousand."""


async def ask(
    socket: str, path: str, origin: ForwardedOrigin = OPERATOR, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Return (HTTP status, body) of a GET. `headers` must hold no line breaks. Raises OSError.

    The caller limits its time.
    """
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {"Host": "localhost"}).items())
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        # HTTP/1.0: the answer is not chunked, and ends with the connection.
        writer.write(
            origin.encode() + f"GET {path} HTTP/1.0\r\n{lines}\r\n".encode("utf-8", "surrogateescape")
        )
        try:
            await reader.readexactly(_LONGEST_ANSWER)
            raise ConnectionError(f"{path} is answered with more than {_LONGEST_ANSWER} bytes")
        except asyncio.IncompleteReadError as whole:
            head, _, body = whole.partial.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.") or len(head) < 12:
            raise ConnectionError(f"{path} is not answered")
        return int(head[9:12]), body
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
