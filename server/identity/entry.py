"""The challenge and the proof with which a joined device authenticates its session."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from edgeflock.server.identity.audit import Audit
from edgeflock.server.identity.records import Caller
from edgeflock.server.identity.register import Register
from edgeflock.shared.errors import Quarantined
from edgeflock.shared.identity import CHALLENGE, CHALLENGE_BYTES, ROTATE, to_base64url


@dataclass(frozen=True, slots=True)
class SessionAuthenticator:
    """The authenticator of one session. Each session has a challenge of its own, to be answered once."""

    register: Register
    caller: Caller
    pin: bytes
    audit: Audit
    challenge: bytes = field(default_factory=lambda: os.urandom(CHALLENGE_BYTES))

    @property
    def credential(self) -> bytes:
        """Digest of the credential that was shown."""
        return self.caller.digest

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that operators have given the device."""
        return self.register.devices[self.caller.name].labels

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the answer that begins the session."""
        is_to_rotate = self.register.is_to_rotate(self.caller.name, self.caller.digest)
        return {CHALLENGE: to_base64url(self.challenge)} | ({ROTATE: "1"} if is_to_rotate else {})

    def check(self, name: str, proof: bytes) -> None:
        """Raises Unauthorized if the proof does not hold, Quarantined during a quarantine."""
        self.register.check(self.caller, name, self.challenge, self.pin, proof)

    def quarantine(self, reason: str) -> Quarantined:
        """Quarantine the device; return the refusal for it."""
        refusal = self.register.quarantine(self.caller.name, reason)
        self.audit.note(
            "the server", f"quarantined {self.caller.name!r}", seconds=refusal.seconds, because=reason
        )
        return refusal
