"""Splits blocks of bytes into lines, in bounded memory. It skips lines that are too long."""

from edgeflock.client.data.records import RECORD_BYTES, Skipped


class LineReader:
    """Reads lines of at most RECORD_BYTES. A line ends with \\n or \\r\\n, which it does not include."""

    def __init__(self, tally: Skipped, at: int = 0) -> None:
        """`at` is the offset of the first block in its file."""
        self._tally = tally
        self._begun = bytearray()
        self._too_long = False
        self._at = at
        self._number = 0

    @property
    def waiting(self) -> int:
        """Bytes of the incomplete last line."""
        return len(self._begun)

    def feed(self, block: bytes) -> list[tuple[int, int, bytes]]:
        """Return (offset, number from 1 on, line) of each line that `block` completes."""
        *ended, rest = block.split(b"\n")
        lines = []
        for part in ended:
            self._add(part)
            lines += self._taken(1)
        self._add(rest)
        return lines

    def end(self) -> list[tuple[int, int, bytes]]:
        """Return the text after the last line end, if there is any."""
        return self._taken(0)

    def _add(self, part: bytes) -> None:
        self._at += len(part)
        if self._too_long:
            return
        self._begun += part
        if len(self._begun) > RECORD_BYTES + 1:  # 1 for a \r
            self._pass_over()

    def _pass_over(self) -> None:
        self._tally.add("too large", f"a line is longer than {RECORD_BYTES} bytes")
        self._too_long = True
        self._begun.clear()

    def _taken(self, line_end: int) -> list[tuple[int, int, bytes]]:
        line, began = bytes(self._begun), self._at - len(self._begun)
        whole = not self._too_long
        self._begun.clear()
        self._too_long = False
        self._at += line_end
        line = line.removesuffix(b"\r")
        if len(line) > RECORD_BYTES:
            self._pass_over()
            self._too_long = whole = False
        self._number += 1
        return [(began, self._number, line)] if whole and line.strip() else []
