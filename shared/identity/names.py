"""Rules for device names: two names that look alike cannot belong to two devices.

People tell devices apart by their displayed names. So a name has one form, no invisible characters, and
letters of one script. No name in other letters may look like an existing one (Unicode Technical Standard 39,
in short).
"""

import unicodedata
from collections.abc import Iterable

LONGEST = 200
"""Characters."""

_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
"""Invisible letters and marks; most others of this kind are not printable in Python."""

_SELECTORS = (range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
"""Variation selectors, which are invisible too."""

_COMPATIBLE = ({"CJK", "HIRAGANA", "IDEOGRAPHIC", "KATAKANA", "LATIN"}, {"CJK", "HANGUL", "LATIN"})
"""Scripts that are written together."""

_LOOKALIKES = str.maketrans(
    # Cyrillic, Greek, Armenian, other Latin letters, Lisu, Cherokee, Coptic, dashes
    "авгеіјкмнорсутхѕһԁԛԝӏѵАВЕІЈКМНОРСТУХЅԚԜӀ" "ανορικυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" "հոսցքօ" "ɑɡıɩʏᴄᴏᴜᴠᴡᴢꜱƅǃǀ"
    "ꓐꓑꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ" "ᎠᎡᎢᎪᎫᎬᎳᎷᎻᎽᏀᏃᏏᏒᏔᏙᏚᏞᏟᏢᏦᏧᏴ"
    "ⲟⲣⲥⲭⲤⲞⲢⲬⲎⲚⲔⲘⲒⲈⲀⲂⲦ" "‐‒–—―−",
    "aBreijkMHopcyTxshdqwlvABEIJKMHOPCTYXSQWI" "avopikuxyABEZHIKMNOPTYX" "hnugpo" "agiiycouvwzsb!l"
    "BPDTGKJCZFMNLSRVHWXYAEIOU" "DRTAJEWMHYGZbRWVSLCPKdB"
    "opcxCOPXHNKMIEABT" "------",
)  # fmt: skip
"""Characters that look like an ASCII character -> that character."""


def fault(name: str) -> str:
    """The rule that a name breaks; empty: it is valid."""
    if not 0 < len(name) <= LONGEST or not name.isprintable():
        return f"must be a text of 1 to {LONGEST} printable characters"
    if name != " ".join(name.split()):
        return "must have single spaces, and none at its ends"
    if name.isascii():
        return ""
    if name != unicodedata.normalize("NFKC", name):
        return "must be in Unicode's normal form NFKC"
    if any(c in _INVISIBLE or any(ord(c) in selectors for selectors in _SELECTORS) for c in name):
        return "must have no characters that nobody sees"
    found = scripts(name)
    if len(found) > 1 and not any(found <= together for together in _COMPATIBLE):
        return f"must have letters of one script, not of {' and '.join(one.title() for one in sorted(found))}"
    return ""


def scripts(name: str) -> set[str]:
    """Those of its letters and digits, by the first words of their Unicode names: Python knows no scripts.

    >>> scripts("pi-7") == {"LATIN"}
    True
    """
    those = (c for c in name if c.isalpha() or (c.isdecimal() and not c.isascii()))
    return {unicodedata.name(c, "UNKNOWN").split()[0].split("-")[0] for c in those}


def name_with_scripts(name: str) -> str:
    """A name, and the scripts that it is in where that is not Latin alone.

    >>> name_with_scripts("pi"), name_with_scripts("\u0440\u0456")
    ('pi', 'рі (Cyrillic)')
    """
    others = sorted(scripts(name) - {"LATIN"})
    return f"{name} ({', '.join(others).title()})" if others else name


def find_lookalike(name: str, others: Iterable[str]) -> str | None:
    """Return another name that looks like `name`, if `name` has letters outside ASCII."""
    if name.isascii():
        return None
    reads = name.translate(_LOOKALIKES)
    return next((other for other in others if other != name and other.translate(_LOOKALIKES) == reads), None)
