"""The frames of a WebSocket by their heads (RFC 6455, section 5.2): no payload is kept, no mask undone.

aiohttp reads the messages. This knows, before it does, how long they will be, how much of them is there, and
whether one is begun that is not finished. What it lets pass and RFC 6455 does not is aiohttp's to refuse.
"""

from collections import deque

PROTOCOL_ERROR, TOO_BIG = 1002, 1009

_CONTROL = 0x8
_CLOSE, _BINARY = 0x8, 0x2

_BESIDE = 128
"""Bytes that even an empty message takes in memory."""


class Breach(Exception):
    """The connection must end."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        """RFC 6455's close code."""


class Framing:
    """What a device has sent of its messages. Control frames are followed, and count for nothing."""

    def __init__(self, longest: int) -> None:
        """`longest` is the most bytes of a message; it may be set anew between messages."""
        self.longest = longest
        self.messages = 0
        """How many were finished."""
        self.held = 0
        """Bytes of the unfinished one, and of the finished ones that nobody has taken yet."""
        self._finished: deque[int] = deque()
        self._size = 0
        """Of the unfinished one, as far as it is there."""
        self._open = False
        """Whether frames of it are to follow."""
        self._head = b""
        self._left = 0
        """Bytes of the frame that are to come."""
        self._is_data = self._is_last = False

    @property
    def unfinished(self) -> bool:
        """Whether a frame or a message is begun."""
        return bool(self._left or self._head) or self._open

    def feed(self, data: bytes) -> None:
        """Follow what has arrived. Raises Breach."""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                part = min(self._left, end - at)
                at += part
                self._take(part)
                continue
            head = self._head + data[at : at + 14 - len(self._head)]
            length = _length_of(head)
            if length > len(head):
                self._head = head
                return
            at += length - len(self._head)
            self._head = b""
            self._begin(head[:length])

    def take(self) -> None:
        """Somebody has taken the next finished message."""
        self.held -= self._finished.popleft()

    def _begin(self, head: bytes) -> None:
        opcode, flag = head[0] & 0x0F, head[1] & 0x7F
        payload = flag if flag < 126 else int.from_bytes(head[2 : len(head) - 4], "big")
        self._is_data, self._is_last = opcode < _CONTROL, bool(head[0] & 0x80)
        if self._is_data:
            if self._size + payload > self.longest:
                raise Breach(TOO_BIG, f"a message has at most {self.longest} bytes")
            if not self._open:
                self.held += _BESIDE
            self._open = True
        self._left = payload
        self._take(0)

    def _take(self, part: int) -> None:
        """So many bytes more of the frame are there."""
        self._left -= part
        if not self._is_data:
            return
        self._size += part
        self.held += part
        if not self._left and self._is_last:
            self._finished.append(self._size + _BESIDE)
            self.messages += 1
            self._size, self._open = 0, False


def _length_of(head: bytes) -> int:
    """How long a frame's head is that begins with these bytes, as far as they tell. Raises Breach."""
    if len(head) < 2:
        return 2
    if not head[1] & 0x80:
        raise Breach(PROTOCOL_ERROR, "a device masks its frames")
    flag = head[1] & 0x7F
    return 6 + (0 if flag < 126 else 2 if flag == 126 else 8)


def binary(payload: bytes) -> bytes:
    """A server's message."""
    return _frame(_BINARY, payload)


def close(code: int, reason: str) -> bytes:
    """A server's close frame."""
    return _frame(_CLOSE, code.to_bytes(2, "big") + reason.encode())


def _frame(opcode: int, payload: bytes) -> bytes:
    """Of less than 65,536 bytes of payload."""
    size = len(payload)
    length = bytes([size]) if size < 126 else bytes([126]) + size.to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + payload
