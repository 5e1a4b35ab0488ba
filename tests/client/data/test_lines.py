"""Lines out of blocks, and what they say as JSON or CSV."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeflock.client.data import reading as module
from edgeflock.client.data.reading import LineReader, Text
from edgeflock.client.data.records import RECORD_BYTES, QuarantineFile, Skipped
from edgeflock.client.data.uri import Uri
from edgeflock.shared.data.texts import ABSENT, encode_text
from edgeflock.shared.errors import ConfigError


@given(text=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b" "])).map(b"".join), data=st.data())
def test_however_it_was_cut_the_same_lines_come_out(text: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    blocks = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    lines = LineReader(Skipped())
    got = [line for block in blocks for line in lines.feed(block)] + lines.end()
    expected, at = [], 0
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            expected.append((at, number, line.removesuffix(b"\r")))
        at += len(line) + 1
    assert got == expected
    assert all(text[at : at + len(line)] == line for at, _, line in got)


def test_a_line_without_end_takes_no_memory_and_is_passed_over() -> None:
    lines = LineReader(tally := Skipped())
    for _ in range(40):
        assert lines.feed(bytes(RECORD_BYTES // 4)) == []
        assert len(lines._partial) <= RECORD_BYTES + 1
    assert lines.feed(b"still\nnext\n") == [(10 * RECORD_BYTES + 6, 2, b"next")]
    assert tally.counts == {"too large": 1}


def test_the_longest_line_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORD_BYTES", 4)
    lines = LineReader(tally := Skipped())
    assert [line for *_, line in lines.feed(b"1234\r\n12345\n123456\n12\n")] == [b"1234", b"12"]
    assert tally.counts == {"too large": 2}


class Reading:
    def __init__(self, options: str = "", quarantine: QuarantineFile | None = None) -> None:
        self.tally = Skipped(quarantine)
        self._text = Text(Uri.parse(f"stdin:?{options}"), self.tally)
        self._lines = LineReader(self.tally)

    def read(self, text: str | bytes, name: str = "") -> list[tuple[Any, Any]]:
        octets = text if isinstance(text, bytes) else text.encode()
        self.chunks = self._text.chunks(self._lines.feed(octets), name)
        return [
            sample for chunk in self.chunks for sample in zip(chunk.x.tolist(), chunk.y.tolist(), strict=True)
        ]


def test_lines_of_json() -> None:
    reading = Reading()
    assert reading.read('{"x": [1, 2], "y": 0}\n{"x": [3, 4], "y": 1}\n') == [([1, 2], 0), ([3, 4], 1)]
    assert reading.read("3,4,1\n[1]\n") == []
    assert reading.tally.counts == {"unreadable": 1, "incomplete": 1}


def test_a_line_before_the_first_record_is_set_aside_and_decides_nothing(tmp_path: Path) -> None:
    reading = Reading(quarantine=QuarantineFile(tmp_path / "quarantine.jsonl"))
    assert reading.read('sensor gateway v1.2 started\n{"x": [1, 2], "y": 0}\n') == [([1, 2], 0)]
    assert reading.tally.counts == {"incomplete": 1}
    assert json.loads((tmp_path / "quarantine.jsonl").read_text())["record"] == "sensor gateway v1.2 started"


def test_json_after_a_header_names_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    assert Reading().read('gateway, started\n{"x": [1, 2], "y": 0}\n') == []
    assert "line 2: a line has 3 cells, not 2; for lines of JSON set format=json" in caplog.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "1.5,2,0\n3,4,1\n"),
        ("", "1.5, 2 ,0\r\n\r\n3,4,1\r\n"),
        ("", "\ufefftemperature,humidity,state\n1.5,2,0\n3,4,1\n"),
        ("", "y,a,b\n0,1.5,2\n1,3,4\n"),
        ("x=a,b&y=state", "time,state,b,a\nnoon,0,2,1.5\nlater,1,4,3\n"),
        ("x=1,2&y=3", "2026-11-22T12:00:00,1.5,2,0\n2026-11-22T12:00:01,3,4,1\n"),
        ("sep=;", '"a";"b";"y"\n1.5;2;0\n3;4;1\n'),
        ("sep=;&decimal=comma", "a;b;y\n1,5;2;0\n3;4;1\n"),
        ("sep=tab&names=idle,running", "a\tb\tstate\n1.5\t2\tidle\n3\t4\trunning\n"),
        ("", "\ufeff\nhello\na,b,y\n1.5,2,0\n3,4,1\n"),
        ("format=csv", "a,b,y\n1.5,2,0\n3,4,1\n"),
    ],
)
def test_lines_of_csv(options: str, text: str) -> None:
    reading = Reading(options)
    assert reading.read(text) == [([1.5, 2], 0), ([3, 4], 1)]
    assert reading.tally.total == (2 if "hello" in text else 0)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b"1,2\n", "incomplete"),
        (b"1,2,3,4\n", "incomplete"),
        (b"1,,0\n", "incomplete"),
        (b"1,2,idle\n", "not numbers"),
        (b"1,\xff\xfe,0\n", "unreadable"),
        (b'1,"' + b"2" * 200_000 + b'",0\n', "unreadable"),
        (b"\0,\0,\0\n", "not numbers"),
        (b"1,2," + b"9" * 30 + b"\n", "not numbers"),
    ],
)
def test_broken_rows_are_counted_and_cost_no_other(line: bytes, kind: str) -> None:
    reading = Reading()
    assert reading.read(b"a,b,y\n5,6,0\n" + line + b"7,8,1\n") == [([5, 6], 0), ([7, 8], 1)]
    assert reading.tally.counts == {kind: 1}


def test_what_is_wrong_is_told_by_its_line(caplog: pytest.LogCaptureFixture) -> None:
    Reading().read(b"a,b,y\n5,6,0\n\n1,,0\n")
    assert "line 4: of a, b only some are there, b not; missing=mean takes the run's means" in caplog.text
    with pytest.raises(ConfigError, match=r"line 4: of a, b only some .* \(missing=error\)"):
        Reading("missing=error").read(b"a,b,y\n5,6,0\n\n1,,0\n")


def test_a_text_and_a_missing_value_become_numbers_that_no_sensor_reads() -> None:
    reading = Reading("missing=mean")
    (first, _), (second, _) = reading.read(b"a,b,y\n5,auto,0\nn/a, auto ,1\n")
    assert first == [5, encode_text("auto")]
    assert second == [ABSENT, encode_text("auto")]
    assert encode_text("auto") < ABSENT < -1e38


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_break(octets: bytes) -> None:
    for options in ("", "format=csv", "format=json"):
        try:
            Reading(options).read(octets + b"\n")
        except ConfigError:
            continue


def test_columns_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match="there is no column 'c'; there are a, b"):
        Reading("x=a&y=c").read("a,b\n")


def test_rows_of_a_file_are_named_by_their_place() -> None:
    reading = Reading()
    assert len(reading.read("a,y\n1,0\n2,1\n", "readings.csv:7")) == 2
    assert reading.chunks[0].keys == ("readings.csv:7@4", "readings.csv:7@8")
    named = Reading()
    named.read("key,a,y\nfirst,1,0\n", "readings.csv:7")
    assert named.chunks[0].keys == ("first",)
