"""`edgeflock status` of devices with labels and versions."""

from typing import Any

from edgeflock.operations.status import with_labels

STATUS: dict[str, Any] = {
    "run": "r",
    "devices": [
        {"name": "a", "labels": {"site": "north", "floor": "1"}},
        {"name": "b", "labels": {"site": "north", "floor": "2"}},
        {"name": "c", "labels": {}},
        {"name": "of a server of an older version"},
    ],
}


def names(*labels: str) -> list[str]:
    return [device["name"] for device in with_labels(STATUS, labels)["devices"]]


def test_all_labels_must_hold() -> None:
    assert names("site=north") == ["a", "b"]
    assert names("site=north", "floor=2") == ["b"]
    assert names("site=south") == []
    assert names("site") == []


def test_without_labels_all_are_shown() -> None:
    assert with_labels(STATUS, ()) is STATUS
    assert with_labels({"run": "r"}, ["site=north"]) == {"run": "r"}  # what a device's token shows
