"""Each refusal has a meaning, a code and a status of its own."""

import inspect
from itertools import pairwise

from edgeflock.shared import errors
from edgeflock.shared.errors import REFUSALS, ConfigError, EdgeflockError, Refused, SessionRefused

CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
}


def test_every_error_says_what_it_means() -> None:
    """Operators read it on the page of errors."""
    assert [name for name, kind in CLASSES.items() if not kind.__doc__] == []


def test_codes_are_unique_and_spelt_as_the_class() -> None:
    refusals = [kind for kind in CLASSES.values() if issubclass(kind, Refused)]
    assert len({kind.code for kind in refusals}) == len(refusals)
    for kind in refusals:
        assert kind.code.replace("-", "") == kind.__name__.lower()


def test_every_refusal_that_can_be_raised_has_its_code_in_the_table() -> None:
    """All but those that only gather others."""
    gathering = {Refused, SessionRefused}
    raised = {kind for kind in CLASSES.values() if issubclass(kind, Refused)} - gathering
    assert set(REFUSALS.values()) == raised
    assert all(REFUSALS[kind.code] is kind for kind in raised)


def test_statuses_are_those_of_a_peers_mistake_or_of_a_server_that_cannot() -> None:
    for kind in CLASSES.values():
        if issubclass(kind, Refused):
            assert 400 <= kind.status < 500 or kind.status in (503, 507)


def test_close_codes_tell_session_refusals_apart() -> None:
    """4000 + status must name one refusal, and stay within WebSocket's private range."""
    statuses = sorted(kind.status for kind in REFUSALS.values() if issubclass(kind, SessionRefused))
    assert all(before < after for before, after in pairwise(statuses))
    assert all(4000 <= 4000 + status <= 4999 for status in statuses)


def test_what_a_person_must_mend_is_no_refusal() -> None:
    assert issubclass(ConfigError, EdgeflockError)
    assert not issubclass(ConfigError, Refused)
