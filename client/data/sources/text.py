"""Lines as a stream, of JSON or CSV (client/data/table.py): what other programs print, and files of readings.

    stdin:                  what is piped in: tail -f readings.csv | edgeflock client --data stdin:
    csv:PATH                a file, once
    csv:PATH?follow         and what is written to its end from then on; a file that begins anew, or is
                            replaced, is read from its beginning

A line that is longer than RECORD_BYTES is passed over. Samples of a file are named by their place in it.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from edgeflock.client.data.lines import LineReader
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sources.handover import from_thread
from edgeflock.client.data.table import TEXT_OPTIONS, Text
from edgeflock.client.data.uri import Uri
from edgeflock.shared.errors import ConfigError

BLOCK = 1 << 16
"""Bytes that are read at a time."""

WAITING = 16
"""Blocks, at most, that wait to be taken."""

LOOK_SECONDS = 0.2
"""Between two looks at a file that is followed."""


async def piped(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    uri.knows(*TEXT_OPTIONS)
    if uri.place:
        raise uri.wrong("stdin takes no path; of a file: csv:PATH")
    text, lines = Text(uri, tally), LineReader(tally)
    # A file as stdin cannot be waited for by the event loop; a thread can read whatever it is.
    async with aclosing(from_thread(_blocks(0), WAITING)) as several:
        async for blocks in several:
            for block in blocks:
                for chunk in text.chunks(lines.feed(block), ""):
                    yield chunk
    for chunk in text.chunks(lines.end(), ""):
        yield chunk


def _blocks(file: int) -> Generator[bytes, None, None]:
    """Not through a buffered file object, whose lock a thread that is left behind would hold at the end."""
    while block := os.read(file, BLOCK):
        yield block


async def read_and_followed(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    uri.knows("follow", *TEXT_OPTIONS)
    path, following = Path(uri.place), "follow" in uri.options
    while True:
        file = _opened(path)
        if file is None:
            if not following:
                raise uri.wrong("there is no such file")
            await asyncio.sleep(LOOK_SECONDS)
            continue
        with file:
            # A file that begins anew names its columns anew.
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
                if _is_another(path, file):
                    break
                await asyncio.sleep(LOOK_SECONDS)


def _opened(path: Path) -> BinaryIO | None:
    """None if there is none. Raises ConfigError."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _is_another(path: Path, file: BinaryIO) -> bool:
    """Whether the path leads to another file by now, or to one that is shorter than what was read of it."""
    try:
        here = path.stat()
    except OSError:
        return False  # between the old one and the new one
    return here.st_ino != os.fstat(file.fileno()).st_ino or here.st_size < file.tell()
