"""The chain: 16 bits that identify all bytes of the models that a device received.

A lossy difference is applied to the device's replica, which the server must know exactly. So both ends keep
the CRC-32 of all bytes since the last whole model. A device sends its low 16 bits with every request. Zero
means that the replica is the model itself: the run's first model, which is not sent, or exact values.
"""

from zlib import crc32

from edgeflock.shared.protocol.messages import Model

FIRST = 0


def follow(chain: int, model: Model) -> int:
    """Return the chain after `model`, which was applied to the replica of `chain`: 0 to 2^32 - 1.

    A model that changes nothing leaves the chain as it is. After exact values it is FIRST: the version alone
    identifies the replica.
    """
    if not model.changes:
        return FIRST
    if not model.count:
        return chain
    return crc32(model.values, crc32(model.indices, FIRST if model.base is None else chain))


def low_bits(chain: int) -> int:
    """Return the 16 bits that a device sends: 1 to 65535, and 0 only for FIRST."""
    return chain & 0xFFFF or int(chain != FIRST)
