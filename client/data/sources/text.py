"""Lines of JSON or CSV as a stream (client/data/reading.py), from other programs or files.

    stdin:                  piped lines: tail -f readings.csv | edgeflock client --data stdin:
    csv:PATH                a file, once
    csv:PATH?follow         and then appended lines; a truncated or replaced file is read from its beginning

A line longer than RECORD_BYTES is skipped. The key of a file's sample is its position in the file.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from edgeflock.client.data.reading import TEXT_OPTIONS, LineReader, Text
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources.handover import from_thread
from edgeflock.client.data.uri import Uri
from edgeflock.shared.errors import ConfigError

BLOCK = 1 << 16
"""Bytes to read at a time."""

QUEUE_SIZE = 16
"""Maximum number of waiting blocks."""

CHECK_SECONDS = 0.2
"""Seconds between two checks of a followed file."""


async def read_stdin(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    uri.check_options(*TEXT_OPTIONS)
    if uri.place:
        raise uri.error("stdin takes no path; of a file: csv:PATH")
    text, lines = Text(uri, tally), LineReader(tally)
    # The event loop cannot wait for a regular file as stdin; a thread can read any stdin.
    async with aclosing(from_thread(_blocks(0), QUEUE_SIZE)) as several:
        async for blocks in several:
            for block in blocks:
                for chunk in text.chunks(lines.feed(block), ""):
                    yield chunk
    for chunk in text.chunks(lines.end(), ""):
        yield chunk


def _blocks(file: int) -> Generator[bytes, None, None]:
    """Yield blocks of a file. A buffered file object has a lock that a leftover thread would hold at exit."""
    while block := os.read(file, BLOCK):
        yield block


async def read_csv(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    uri.check_options("follow", *TEXT_OPTIONS)
    path, following = Path(uri.place), "follow" in uri.options
    while True:
        file = _open(path)
        if file is None:
            if not following:
                raise uri.error("there is no such file")
            await asyncio.sleep(CHECK_SECONDS)
            continue
        with file:
            # A new file has its own header.
            text, lines = Text(uri, tally), LineReader(tally)
            name = f"{path.name}:{os.fstat(file.fileno()).st_ino}"
            while True:
                while block := file.read(BLOCK):
                    for chunk in text.chunks(lines.feed(block), name):
                        yield chunk
                if not following:
                    for chunk in text.chunks(lines.end(), name):
                        yield chunk
                    return
                if _is_replaced(path, file):
                    break
                await asyncio.sleep(CHECK_SECONDS)


def _open(path: Path) -> BinaryIO | None:
    """Return the open file, or None if it does not exist. Raises ConfigError."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _is_replaced(path: Path, file: BinaryIO) -> bool:
    """Return whether the path now names another file, or one shorter than the part already read."""
    try:
        status = path.stat()
    except OSError:
        return False  # between the old one and the new one
    return status.st_ino != os.fstat(file.fileno()).st_ino or status.st_size < file.tell()
