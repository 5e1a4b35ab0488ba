"""Parses WebSocket frame headers (RFC 6455, section 5.2). It keeps no payload and removes no mask.

aiohttp reads the messages. Before aiohttp does, this module knows the length of each message, how many of its
bytes have arrived, and whether it is finished. aiohttp refuses other violations of RFC 6455.
"""

from collections import deque

PROTOCOL_ERROR, TOO_BIG = 1002, 1009

_CONTROL = 0x8
_CLOSE, _BINARY = 0x8, 0x2

_OVERHEAD = 128
"""Memory overhead of a message in bytes, even if it is empty."""


class Breach(Exception):
    """A violation after which the connection must close."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        """RFC 6455's close code."""


class Framing:
    """The state of the messages that a device sends. Control frames are parsed, but not counted."""

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` is the maximum message size in bytes. It may be changed between messages."""
        self.max_bytes = max_bytes
        self.messages = 0
        """How many messages are finished."""
        self.held_bytes = 0
        """Bytes of the unfinished message, and of finished messages that are not taken yet."""
        self._finished: deque[int] = deque()
        self._size = 0
        """Bytes received of the unfinished message."""
        self._open = False
        """Whether a message is unfinished."""
        self._head = b""
        self._remaining = 0
        """Bytes of the current frame that are still to come."""
        self._is_data = self._is_last = False

    @property
    def unfinished(self) -> bool:
        """Whether a frame or a message is incomplete."""
        return bool(self._remaining or self._head) or self._open

    def feed(self, data: bytes) -> None:
        """Parse received data. Raises Breach."""
        offset, end = 0, len(data)
        while offset < end:
            if not self._remaining:
                head = self._head + data[offset : offset + 14 - len(self._head)]
                length = _length_of(head)
                if length > len(head):
                    self._head = head
                    return
                offset += length - len(self._head)
                self._head = b""
                self._begin(head[:length])
            part = min(self._remaining, end - offset)
            offset += part
            self._take(part)

    def take(self) -> None:
        """Record that the next finished message was taken."""
        self.held_bytes -= self._finished.popleft()

    def _begin(self, head: bytes) -> None:
        opcode, flag = head[0] & 0x0F, head[1] & 0x7F
        payload = flag if flag < 126 else int.from_bytes(head[2 : len(head) - 4], "big")
        self._is_data, self._is_last = opcode < _CONTROL, bool(head[0] & 0x80)
        if self._is_data:
            if self._size + payload > self.max_bytes:
                raise Breach(TOO_BIG, f"a message has at most {self.max_bytes} bytes")
            if not self._open:
                self.held_bytes += _OVERHEAD
            self._open = True
        self._remaining = payload

    def _take(self, part: int) -> None:
        """Count `part` more bytes of the current frame."""
        self._remaining -= part
        if not self._is_data:
            return
        self._size += part
        self.held_bytes += part
        if not self._remaining and self._is_last:
            self._finished.append(self._size + _OVERHEAD)
            self.messages += 1
            self._size, self._open = 0, False


def _length_of(head: bytes) -> int:
    """Return the length of the frame header that starts with `head`, as far as known. Raises Breach."""
    if len(head) < 2:
        return 2
    if not head[1] & 0x80:
        raise Breach(PROTOCOL_ERROR, "a device masks its frames")
    flag = head[1] & 0x7F
    return 6 + (0 if flag < 126 else 2 if flag == 126 else 8)


def binary(payload: bytes) -> bytes:
    """Encode a binary message of the server."""
    return _frame(_BINARY, payload)


def close(code: int, reason: str) -> bytes:
    """Encode a close frame of the server."""
    return _frame(_CLOSE, code.to_bytes(2, "big") + reason.encode())


def _frame(opcode: int, payload: bytes) -> bytes:
    """Encode a frame with a payload of less than 65,536 bytes."""
    size = len(payload)
    length = bytes([size]) if size < 126 else bytes([126]) + size.to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + payload
