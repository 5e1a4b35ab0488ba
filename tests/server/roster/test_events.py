"""The events that are kept: numbered, bounded, printable, and not crowded out by devices."""

from edgeflock.server.roster.hub import LIMIT, Events


def test_a_reader_gets_each_once_and_learns_what_it_missed() -> None:
    events = Events()
    for number in range(5):
        events.add(0.0, "config", None, str(number))
    assert [event.text for event in events.list_from(0)[0]] == ["0", "1", "2", "3", "4"]
    assert [event.text for event in events.list_from(3)[0]] == ["3", "4"]
    assert events.list_from(5) == ((), 0)
    for number in range(5, LIMIT + 20):
        events.add(0.0, "config", None, str(number))
    kept, missed = events.list_from(5)
    assert missed == 15
    assert [event.text for event in kept] == [str(number) for number in range(20, LIMIT + 20)]


def test_devices_in_a_crowd_are_summed_up() -> None:
    events = Events()
    for number in range(1000):
        events.add(7.5, "refused", f"pi-{number}", "non-finite")
    for number in range(2):
        events.add(8.0, "refused", f"late-{number}", "non-finite")
    kept, _ = events.list_from(0)
    assert [(event.device, event.text) for event in kept] == [
        *((f"pi-{number}", "non-finite") for number in range(5)),
        ("late-0", "non-finite (and 995 more)"),
        ("late-1", "non-finite"),
    ]


def test_what_devices_say_is_printable_and_short() -> None:
    events = Events()
    events.add(0.0, "refused", None, "\x1b[2J" + "x" * 1000)
    (event,), _ = events.list_from(0)
    assert event.text.startswith("?[2Jxxx")
    assert len(event.text) == 300
