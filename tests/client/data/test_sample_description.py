"""A stream's samples as the run reads them: by its units and categories, whoever names them."""

import logging

import numpy as np
import pytest

from edgeflock.client.data.checks import Checks, SampleSchema
from edgeflock.client.data.messages import FieldPaths as Names
from edgeflock.client.data.messages import decode
from edgeflock.client.data.records import Skipped, StreamChunk
from edgeflock.client.data.sample_description import SampleDescription
from edgeflock.shared.data.texts import ABSENT, check_codes, encode_text, places_of
from edgeflock.shared.model.description import Description

RUN = Description(
    ("warm", "mode"), (20.0, 0.0), (2.0, 1.0), (), True, (100.0, 50.0), ((), ("auto", "off", "on"))
)
NAMES = Names(("warm", "mode"), "watts", missing="mean")


def chunk(*messages: bytes) -> StreamChunk:
    records = [decode(message, NAMES) for message in messages]
    x = np.stack([record.x for record in records if record.x is not None])
    y = np.stack([record.y for record in records if record.y is not None])
    return StreamChunk(x, y.astype(np.int64))


def test_numbers_categories_and_targets_are_the_runs() -> None:
    came = chunk(b'{"warm": 24, "mode": "on", "watts": 150}', b'{"warm": 18, "mode": "auto", "watts": 50}')
    taken = SampleDescription(RUN).convert(came, Skipped())
    assert taken.x.tolist() == [[2, 0, 0, 1], [-1, 1, 0, 0]]
    assert taken.y.tolist() == [1, -1]
    assert taken.y.dtype == np.float32, "though whole numbers came"


def test_what_is_missing_is_the_mean_and_what_is_unknown_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    came = chunk(
        b'{"warm": null, "mode": "turbo", "watts": 0}',
        b'{"warm": "n/a", "mode": "on", "watts": 0}',
        b'{"warm": 22, "mode": 7, "watts": 0}',
    )
    taken = SampleDescription(RUN).convert(came, tally := Skipped())
    assert taken.x.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    assert tally.counts == {}
    assert caplog.text.count("mode of some samples is missing, or a category that the run does not know") == 1


@pytest.mark.parametrize("run", [RUN, Description(("warm", "mode"), numbers=True), Description(numbers=True)])
def test_a_text_for_which_there_is_no_category_is_set_aside(run: Description) -> None:
    came = chunk(b'{"warm": "hot", "mode": 1, "watts": 0}', b'{"warm": 20, "mode": 1, "watts": 0}')
    taken = SampleDescription(run).convert(came, tally := Skipped())
    assert len(taken) == 1
    assert tally.counts == {"not numbers": 1}


def test_a_text_is_far_from_no_number() -> None:
    messages = [b'{"warm": 20, "mode": "on", "watts": 1}'] * 20 + [b'{"warm": 2e9, "mode": "on", "watts": 1}']
    checks, schema = Skipped(), SampleSchema()
    good = Checks(schema=schema).admit(chunk(*messages), checks)
    assert len(good) == 20
    assert checks.counts == {"out of range": 1}


def test_codes_are_exact_and_told_apart() -> None:
    names = tuple(f"category {number}" for number in range(100))
    x = np.array([encode_text(name) for name in (*names, "another")] + [ABSENT, 3.0], np.float32)
    assert places_of(x, names).tolist() == [*range(100), -1, -1, -1]
    assert np.isfinite(x).all()
    check_codes("mode", names)
