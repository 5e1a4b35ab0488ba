"""What a session of a device that has joined must prove, and with what it was begun."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeflock.server.identity.register import Caller, Register
from edgeflock.shared.identity import CHALLENGE, CHALLENGE_BYTES, ROTATE, text_of


@dataclass(frozen=True, slots=True)
class Entry:
    """Of one session. Its challenge is answered once: each session has its own."""

    register: Register
    caller: Caller
    pin: bytes
    challenge: bytes = field(default_factory=lambda: os.urandom(CHALLENGE_BYTES))

    @property
    def credential(self) -> bytes:
        """Digest of what was shown."""
        return self.caller.digest

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the answer that begins the session."""
        asked = {CHALLENGE: text_of(self.challenge)}
        return asked | {ROTATE: "1"} if self.register.devices[self.caller.name].rotate else asked

    def check(self, name: str, proof: bytes) -> None:
        """Raises Unauthorized if the device is not who it says."""
        self.register.check(self.caller, name, self.challenge, self.pin, proof)
