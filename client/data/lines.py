"""Splits blocks of bytes into lines, in bounded memory. It skips lines that are too long."""

from edgeflock.client.data.records import RECORD_BYTES, Skipped


class LineReader:
    r"""Reads lines of at most RECORD_BYTES. A line ends with \n or \r\n, which it does not include."""

    def __init__(self, tally: Skipped, offset: int = 0) -> None:
        """`offset` is the offset of the first block in its file."""
        self._tally = tally
        self._partial = bytearray()
        self._too_long = False
        self._offset = offset
        self._number = 0

    @property
    def partial_bytes(self) -> int:
        """Bytes of the incomplete last line."""
        return len(self._partial)

    def feed(self, block: bytes) -> list[tuple[int, int, bytes]]:
        """Return (offset, number from 1 on, line) of each line that `block` completes."""
        *ended, rest = block.split(b"\n")
        lines = []
        for part in ended:
            self._add(part)
            lines += self._take_line(1)
        self._add(rest)
        return lines

    def end(self) -> list[tuple[int, int, bytes]]:
        """Return the text after the last line end, if there is any."""
        return self._take_line(0)

    def _add(self, part: bytes) -> None:
        self._offset += len(part)
        if self._too_long:
            return
        self._partial += part
        if len(self._partial) > RECORD_BYTES + 1:  # 1 for a \r
            self._skip_line()

    def _skip_line(self) -> None:
        self._tally.add("too large", f"a line is longer than {RECORD_BYTES} bytes")
        self._too_long = True
        self._partial.clear()

    def _take_line(self, line_end: int) -> list[tuple[int, int, bytes]]:
        line, began = bytes(self._partial), self._offset - len(self._partial)
        whole = not self._too_long
        self._partial.clear()
        self._too_long = False
        self._offset += line_end
        line = line.removesuffix(b"\r")
        if len(line) > RECORD_BYTES:
            self._skip_line()
            self._too_long = whole = False
        self._number += 1
        return [(began, self._number, line)] if whole and line.strip() else []
