"""The numbers that docs/protocol.md states are those of the code."""

import re
from pathlib import Path

import pytest

from edgeflock.client.run import process
from edgeflock.client.training import terms
from edgeflock.client.transport import dialing, downloads, retrying
from edgeflock.server.engine import admission, outcomes
from edgeflock.server.roster import rate_limiter, registry, relay
from edgeflock.server.sessions import records
from edgeflock.shared.graphs import reading
from edgeflock.shared.identity import names
from edgeflock.shared.model import chunks
from edgeflock.shared.protocol import messages, wire
from edgeflock.shared.settings.config import parse

DOCUMENT = " ".join((Path(__file__).parents[2] / "docs" / "protocol.md").read_text().split())
UNITS = {"": 1, " s": 1, " MiB": 1 << 20, " GiB": 1 << 30}
DEFAULTS = re.findall(r"`(\w+)\.(\w+)` \(([\d,]+)( s| MiB| GiB|)[;)]", DOCUMENT)
"""Section, key and number of each setting whose default stands behind it."""


@pytest.mark.parametrize(("section", "key", "number", "unit"), sorted(set(DEFAULTS)))
def test_a_default_is_that_of_the_setting(section: str, key: str, number: str, unit: str) -> None:
    assert int(number.replace(",", "")) * UNITS[unit] == getattr(getattr(parse(), section), key)


def test_all_limits_stand_there() -> None:
    assert len(set(DEFAULTS)) == 13


def power(number: int) -> str:
    """2^24 of 16,777,216."""
    assert number & (number - 1) == 0
    return f"2^{number.bit_length() - 1}"


def mebibytes(number: int) -> str:
    """Without the bytes around them."""
    return f"{number >> 20} MiB"


SENTENCES = [
    f"Ping the server after {dialing.HEARTBEAT:.0f} s without a byte from it",
    f"who is silent for longer, after {records.HEARTBEAT:.0f} s without a byte from the device",
    f"takes the device for gone if nothing comes within {records.HEARTBEAT / 2:.0f} s more",
    f"pings that one. If anything comes of it within {records.ANSWER_SECONDS:.0f} s, the Hello is refused",
    f"has answered its close frame, at most {records.CLOSE_SECONDS:.0f} s later",
    f"by more: by up to {outcomes.SEQUENCE_WINDOW:,}. A number further ahead",
    f"how far a sequence number may be ahead | {outcomes.SEQUENCE_WINDOW:,} |",
    f"(20) of its frames in {registry.WINDOW:.0f} s, over all its sessions",
    f"Refusals of a device in {registry.WINDOW:.0f} s",
    f"a Hello longer than {records.LONGEST_HELLO} bytes",
    f"a Hello or a Credential | {records.LONGEST_HELLO} bytes |",
    f"with commas between; each once, {messages.LONGEST_SHARDS} bytes in all",
    f"elements of one; bytes of a text | {wire._OF_DEVICES.containers}; {wire._OF_DEVICES.array}; "
    f"{wire._OF_DEVICES.text} |",
    f"characters of a name or text in it | {wire._MOST_FACTS}; {wire._LONGEST_FACT} |",
    f"`limits.expansion_bytes` / {admission.EXPANSION_PER_ENTRY}",
    f"{admission.EXPANSION_PER_ENTRY} bytes * `count` are above `limits.expansion_bytes`",
    f"the first answer | {mebibytes(dialing.LONGEST_WELCOME)} |",
    f"{terms._MAX_TENSORS:,}; {terms._MAX_RANK}; {terms._MAX_NAME}, all printable",
    f"batch; batch * local_steps | {terms._MAX_BATCH:,}; {power(terms._MAX_SAMPLES)} |",
    f"version and sequence of a Welcome | {power(terms._MAX_SEQUENCE)} |",
    f"numbers of a sample | {terms._MAX_RANK}; {power(terms._MAX_NUMBERS)}, and 1 at least",
    f"a graph, decompressed | {mebibytes(reading.LARGEST_GRAPH)},",
    f"a device's name | {names.LONGEST} characters, of one script",
    f"A name has 1 to {names.LONGEST} printable characters",
    f"chunks of a model | {chunks.MAX_CHUNKS:,} |",
    f"a later one | 8 bytes * (P + B), and {terms._OVERHEAD}, or {terms._SUM_OVERHEAD:,} with secure sums; "
    "Samples to a device that shares: "
    f"{mebibytes(process._longest_samples())} |",
    f"P + B | 1/{2 * terms._ENTRY_BYTES} of the machine's memory in bytes",
    f"Each record costs its bytes and {rate_limiter.RECORD_COST:,},",
    f"costs {rate_limiter.NUMBER_COST} bytes for each number of the model more",
    f"Up to {mebibytes(relay.WAITING_BYTES)} wait for a device",
    f"Until it is paid, {rate_limiter.LONGEST_WAIT:.0f} s at most, the server reads nothing",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_has_the_code_s_number(sentence: str) -> None:
    assert sentence in DOCUMENT


def test_numbers_in_words() -> None:
    assert "and four seconds of these at once" in DOCUMENT
    assert rate_limiter.BURST_SECONDS == 4
    assert "or five minutes if that is less" in DOCUMENT
    assert retrying.MAX_DELAY == 5 * 60
    assert downloads.LONGEST_GRAPH == reading.LARGEST_GRAPH
