"""Files as a stream: a folder, a file of readings, or piped lines.

dir:PATH takes each new file that appears in a folder, oldest first. A file is an .npz archive with the arrays
x [n, ...] and y [n], FILE_BYTES at most once unpacked; images of bytes are scaled as in
shared/data/datasets.py. Names that begin with a dot are ignored. A file is taken once two consecutive scans
see the same size and time, so it may be written in place. A writer that pauses for longer should write
elsewhere and rename the finished file into the folder.

Nothing is moved or deleted. A file is yielded in pieces of CHUNK_SAMPLES samples. The next request records
their number in the folder, in .edgeflock-taken. A backlog requests more when training has used them, except
for fewer than client.batch_min, which wait for the next piece. A restart continues there: after a crash at
most one piece is repeated. An overwritten file counts as new. A folder belongs to one device. If it is not
writable, a restart repeats everything.

Lines of JSON or CSV (client/data/reading.py) come from other programs or files:

    stdin:                  piped lines: tail -f readings.csv | edgeflock client --data stdin:
    csv:PATH                a file, once
    csv:PATH?follow         and then appended lines; a truncated or replaced file is read from its beginning

A line longer than RECORD_BYTES is skipped. The key of a file's sample is its position in the file.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

import numpy as np

from edgeflock.client.data.reading import TEXT_OPTIONS, LineReader, Text
from edgeflock.client.data.records import Broken, Skipped, StreamChunk
from edgeflock.client.data.sources.handover import from_thread
from edgeflock.client.data.uri import Uri
from edgeflock.shared.data import datasets
from edgeflock.shared.errors import ConfigError

log = logging.getLogger(__name__)

POLL = 1.0
"""Default seconds between two scans (?poll=)."""

FILE_BYTES = 1 << 28

CHUNK_SAMPLES = 512
"""Samples in one chunk."""

LEDGER = ".edgeflock-taken"

FileState = tuple[str, int, int]
"""(name, bytes, time of the last change in ns) of a file."""


async def read_folder(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    uri.check_options("poll")
    folder, pause = Path(uri.place), uri.seconds("poll", POLL, least=0.01)
    progress = FolderProgress(folder)
    before: set[FileState] = set()
    missing = False
    while True:
        try:
            files = scan(folder)
            missing = False
        except OSError as error:
            if not missing:
                log.warning("%s; waiting for the folder", error)
            files, missing = [], True
        for one in files:
            if one in before and progress.rows(one) is not None:
                try:
                    # In the event loop's thread: a file is read quickly, and a thread could not be stopped.
                    chunk = read(folder / one[0])
                except Broken as broken:
                    tally.add(broken.kind, broken.detail)
                    progress.record(one, None)
                    continue
                for first in range(progress.rows(one) or 0, len(chunk), CHUNK_SAMPLES):
                    last = min(first + CHUNK_SAMPLES, len(chunk))
                    keys = tuple(f"{one[0]}:{one[2]}@{row}" for row in range(first, last))
                    yield StreamChunk(chunk.x[first:last], chunk.y[first:last], keys)
                    progress.record(one, last)
                progress.record(one, None)
        before = set(files)
        await asyncio.sleep(pause)


def scan(folder: Path) -> list[FileState]:
    """Return the folder's files, oldest first. Raises OSError."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".npz") and not entry.name.startswith(".") and entry.is_file():
                status = entry.stat()
                found.append((status.st_mtime_ns, entry.name, status.st_size))
    return [(name, size, changed) for changed, name, size in sorted(found)]


def read(path: Path) -> StreamChunk:
    """Return the samples of a file. Raises Broken."""
    try:
        with ZipFile(path) as archive:
            octets = sum(member.file_size for member in archive.infolist())
        if octets > FILE_BYTES:
            raise Broken("too large", f"{path} unpacks to {octets} bytes; at most {FILE_BYTES} are taken")
        with np.load(path) as arrays:
            x, y = arrays["x"], arrays["y"]
    except KeyError as error:
        raise Broken("incomplete", f"{path}: {error}; a file has the arrays x and y") from error
    except (OSError, EOFError, ValueError, TypeError, NotImplementedError, BadZipFile) as error:
        raise Broken("unreadable", f"{path} is no np.savez archive: {error}") from error
    if x.dtype.kind not in "biuf" or y.dtype.kind not in "biuf":
        raise Broken("not numbers", f"{path}: x is of {x.dtype}, y of {y.dtype}")
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
        raise Broken("incomplete", f"{path}: x has the shape {x.shape}, y {y.shape}")
    with np.errstate(over="ignore"):
        return StreamChunk(datasets.to_float32(x), datasets.targets(y))


class FolderProgress:
    """The number of samples taken of each file, recorded in the folder itself."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LEDGER
        self._rows: dict[FileState, int | None] = {}
        """Samples taken of each file. None: all."""
        self._writable = True
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except OSError:
            return  # there is none yet, or no folder
        for line in lines:
            rows, size, changed, name = (*line.split(" ", 3), "", "", "", "")[:4]
            numbers = (size, changed) if rows == "all" else (rows, size, changed)
            if all(number.isdecimal() for number in numbers) and name:  # a crash may have cut the last line
                self._rows[name, int(size), int(changed)] = None if rows == "all" else int(rows)
        self._forget_deleted(folder)

    def rows(self, one: FileState) -> int | None:
        return self._rows.get(one, 0)

    def record(self, one: FileState, rows: int | None) -> None:
        self._rows[one] = rows
        self._write("a", {one: rows})

    def _forget_deleted(self, folder: Path) -> None:
        """Rewrite the record without deleted files, so that it does not grow without limit."""
        present = set(scan(folder))
        self._rows = {one: rows for one, rows in self._rows.items() if one in present}
        anew = self._path.with_name(f"{LEDGER}.new")
        self._write("w", self._rows, anew)
        if self._writable:
            anew.replace(self._path)

    def _write(self, mode: str, noted: dict[FileState, int | None], path: Path | None = None) -> None:
        if not self._writable:
            return
        try:
            with open(path or self._path, mode) as ledger:
                for (name, size, changed), rows in noted.items():
                    # The line end before it completes a line that a crash cut off.
                    ledger.write(f"\n{'all' if rows is None else rows} {size} {changed} {name}\n")
        except OSError as error:
            self._writable = False
            log.warning("%s; after a restart all files will be taken again", error)


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


def read_csv(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    """Return the samples in the file's lines. Raises ConfigError if there is no file to read once."""
    uri.check_options("follow", *TEXT_OPTIONS)
    path, following = Path(uri.place), "follow" in uri.options
    if not following and not path.exists():
        raise uri.error("there is no such file")
    return _read_lines(uri, path, tally, following=following)


async def _read_lines(
    uri: Uri, path: Path, tally: Skipped, *, following: bool
) -> AsyncGenerator[StreamChunk, None]:
    missing = False
    while True:
        file = _open(path)
        if file is None:
            if not following:
                raise uri.error("there is no such file")
            if not missing:
                log.warning("%s", uri.error("there is no such file; waiting for it"))
            missing = True
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
