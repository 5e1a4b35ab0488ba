"""`edgeflock top`: the runs to show, and the screen for them."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeflock.operations.runs import run_addresses
from edgeflock.shared.errors import ConfigError
from edgeflock.tui.sources import FeedClient, Live, Recorder, Recording, Replay, Source

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class TopOptions:
    urls: Sequence[str]
    tokens: Sequence[str]
    """One token for all servers, or one for each."""
    interval: float
    record: Path | None
    replay: Sequence[Path]
    speed: float
    position: str


def show(options: TopOptions) -> None:
    """Show the runs until the operator quits. Raises ConfigError, also if there is no terminal."""
    missing = [
        name
        for name, stream in (("input", sys.stdin), ("output", sys.stdout), ("error", sys.stderr))
        if stream is None or not stream.isatty()
    ]
    if missing:
        remedy = "" if options.replay else "; `edgeflock status` prints a run without one"
        raise ConfigError(f"top needs a terminal, and there is none on standard {', '.join(missing)}{remedy}")
    from edgeflock.tui.screen import Top, preferences

    recorder = Recorder.create(options.record) if options.record is not None else None
    try:
        Top(sources(options, recorder), preferences.folder()).run()
    finally:
        if recorder is not None:
            recorder.close()


def sources(options: TopOptions, recorder: Recorder | None) -> list[Source]:
    """Return a source for each requested run. Raises ConfigError."""
    if options.replay:
        if recorder is not None:
            raise ConfigError("--record and --replay: a replay is a recording already; leave one out")
        return [
            Replay(open_recording(path), path.name, speed=options.speed, position=options.position)
            for path in options.replay
        ]
    if recorder is not None and len(options.urls) > 1:
        raise ConfigError(f"--record takes one run, not {len(options.urls)}; name one server")
    if len(options.tokens) not in (0, 1, len(options.urls)):
        raise ConfigError(
            f"--token was given {len(options.tokens)} times for {len(options.urls)} servers; "
            "give one for all, or one for each in their order"
        )
    tokens = list(options.tokens) or [""]
    addresses = [
        (address, tokens[number % len(tokens)])
        for number, url in enumerate(options.urls)
        for address in run_addresses(url, tokens[number % len(tokens)])
    ]
    if recorder is not None and len(addresses) > 1:
        raise ConfigError(f"--record takes one run, and this server has {len(addresses)}; add /v1/runs/NAME")
    return [Live(FeedClient(url, token, options.interval), recorder) for url, token in addresses]


def open_recording(path: Path) -> Recording:
    """Open a recording, or a server's journal as one. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            journal = file.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise ConfigError(f"--replay {path}: cannot be read: {error.strerror}") from error
    if not journal:
        return Recording.open(path)
    from edgeflock.operations.journal_frames import journal_frames

    return Recording.from_frames(journal_frames(path), str(path))
