"""What the other end wrote, for a log or a terminal: on one line, not long, and nothing that these obey."""

_LONGEST = 300


def shown(text: str) -> str:
    """`text` with escapes for what does not print, cut after 300 characters."""
    head = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in head)
