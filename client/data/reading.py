"""Converts a source's messages to chunks, according to the options of its URI."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from edgeflock.client.data.joining import Joining
from edgeflock.client.data.messages import INCOMPLETE, FieldPaths, SampleMessage, decode, group_records
from edgeflock.client.data.quarantine import RECORD_CHARS, message_entry
from edgeflock.client.data.records import Broken, Skipped, StreamChunk
from edgeflock.client.data.uri import Uri

OPTIONS = ("x", "y", "key", "names", "join", "missing")


class MessageReader:
    """Converts messages to samples and counts broken ones."""

    def __init__(self, uri: Uri, tally: Skipped, now: Callable[[], float] = time.monotonic) -> None:
        """Read the OPTIONS of `uri`. Raises ConfigError."""
        default, options = FieldPaths(), uri.options
        self.fields = FieldPaths(
            _names(uri, "x") or default.x,
            options.get("y") or default.y,
            options.get("key") or default.key,
            _names(uri, "names"),
            uri.one_of("missing", "drop", "mean", "error"),
        )
        self._uri = uri
        self._tally = tally
        self._now = now
        self._joining = Joining(uri.seconds("join", 0.0), tally)

    def chunks(
        self,
        messages: Iterable[tuple[bytes | Mapping[str, Any], str | None]],
        places: Iterable[str] = (),
    ) -> list[StreamChunk]:
        """Return the samples of `messages` that are whole by now, in order.

        Each message comes with its name at the source, which is its key if it has no key of its own. `places`
        describe the messages to users. Raises ConfigError if one lacks a value and missing=error is set.
        """
        records = []
        for (message, name), place in zip(messages, chain(places, repeat(""))):  # noqa: B905
            try:
                records.append(self._record(message, name))
            except Broken as broken:
                prefix = f"{place}: " if place else ""
                if broken.kind == INCOMPLETE and self.fields.missing == "error":
                    raise self._uri.error(f"{prefix}{broken.detail} (missing=error)") from broken
                shown = message_entry(message) if isinstance(message, bytes) else repr(message)[:RECORD_CHARS]
                self._tally.add(broken.kind, f"{prefix}{broken.detail}", records=[shown])
        return group_records(self._joining.join(records, self._now()))

    def _record(self, message: bytes | Mapping[str, Any], name: str | None) -> SampleMessage:
        record = decode(message, self.fields) if isinstance(message, bytes) else self.fields.read(message)
        # A half gets no key from its source, since no partner has that key.
        whole = record.x is not None and record.y is not None
        return replace(record, key=name) if whole and record.key is None else record


def _names(uri: Uri, option: str) -> tuple[str, ...]:
    names = tuple(uri.options[option].split(",")) if option in uri.options else ()
    if names and not all(names):
        raise uri.error(f"{option}={uri.options[option]} must be names such as a,b")
    return names
