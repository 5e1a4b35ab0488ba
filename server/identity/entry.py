"""What a session of a device that has joined must prove, and with what it was begun."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeflock.server.identity.audit import Audit
from edgeflock.server.identity.records import Caller
from edgeflock.server.identity.register import Register
from edgeflock.shared.errors import Quarantined
from edgeflock.shared.identity import CHALLENGE, CHALLENGE_BYTES, ROTATE, text_of


@dataclass(frozen=True, slots=True)
class SessionAuthenticator:
    """Of one session. Its challenge is answered once: each session has its own."""

    register: Register
    caller: Caller
    pin: bytes
    audit: Audit | None
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
        """Raises Unauthorized if the device is not who it says, Quarantined if it is not to come yet."""
        self.register.check(self.caller, name, self.challenge, self.pin, proof)

    def quarantine(self, because: str) -> Quarantined:
        """Keep the device out for a time; what it is told."""
        told = self.register.quarantine(self.caller.name, because)
        if self.audit is not None:
            self.audit.note(
                "the server", f"quarantined {self.caller.name!r}", seconds=told.seconds, because=because
            )
        return told
