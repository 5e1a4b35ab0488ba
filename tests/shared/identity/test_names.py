"""Names that people would take for each other."""

import pytest

from edgeflock.shared.identity import names

LIKE_PI = "\u0440\u0456"  # all Cyrillic


@pytest.mark.parametrize(
    "name",
    [
        "pi",
        "pi-1",
        "Küche 2",
        "кухня",
        "東京ラズベリー々1",
        "한국pi",
        "अ५",
        "پی",
        "a" * 200,
        "⚡ roof",
        LIKE_PI,
    ],
)
def test_honest_names_are_taken(name: str) -> None:
    assert names.fault(name) == ""


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("", "a text of 1 to 200"),
        ("a" * 201, "a text of 1 to 200"),
        ("a\nb", "printable"),
        ("pi\u200b", "printable"),  # zero width space
        ("pi\u200d", "printable"),  # joiner
        ("\u202eip", "printable"),  # right to left override
        ("\u2066pi\u2069", "printable"),  # isolates
        ("\ufeffpi", "printable"),
        ("pi\u00a0", "printable"),  # no-break space
        ("pi ", "single spaces"),
        (" pi", "single spaces"),
        ("p  i", "single spaces"),
        ("cafe\u0301", "normal form"),
        ("\uff50\uff49", "normal form"),  # full width
        ("\u210c", "normal form"),
        ("pi\ufe0f", "nobody sees"),  # variation selector
        ("pi\U000e0101", "nobody sees"),
        ("pi\u034f", "nobody sees"),
        ("\u115f", "nobody sees"),
        ("\u2800", "nobody sees"),
        ("p\u0456", "one script, not of Cyrillic and Latin"),
        ("\u03c1i", "one script, not of Greek and Latin"),
        ("\u043a\u03b1", "one script, not of Cyrillic and Greek"),
    ],
    ids=ascii,
)
def test_names_that_are_not_what_they_seem_are_refused(name: str, wrong: str) -> None:
    assert wrong in names.fault(name)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (LIKE_PI, "pi"),
        ("pi\u20101", "pi-1"),
        ("\u0410\u0412", "AB"),
        ("p\u0131", "pi"),
        ("p\u0269", "pi"),
        ("b\u1d0fb", "bob"),
        ("\ua4d0\ua4f3\ua4d0", "BOB"),  # Lisu
        ("\u13a2\u13ac", "TE"),  # Cherokee
        ("\u2ca3\u2c9f", "po"),  # Coptic
    ],
    ids=ascii,
)
def test_names_that_read_the_same_are_alike(name: str, other: str) -> None:
    assert names.find_lookalike(name, ["a", other, "b"]) == other
    assert names.find_lookalike(name, ["a", name, "b"]) is None
    assert names.find_lookalike(other, [name]) is None, "who has a plain name is not to suffer"


def test_scripts_are_shown() -> None:
    assert names.name_with_scripts("pi-1") == "pi-1"
    assert names.name_with_scripts("Küche") == "Küche"
    assert names.name_with_scripts(LIKE_PI) == f"{LIKE_PI} (Cyrillic)"
