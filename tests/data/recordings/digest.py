"""What a replay shows of a recording or a journal, as digests, by the code of an old commit; see README.md.

Everything of Edgeflock is looked up by its name in that commit, which today's code need not have.
"""

import gzip
import json
import sys
import tempfile
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import msgpack


def named(module: str, name: str) -> Any:
    return getattr(import_module(f"edgeflock.{module}"), name)


def digests(path: Path) -> dict[str, Any]:
    """Of all frames as the feed encodes them, and of all that the screen knows after each."""
    encode, snapshot = named("shared.protocol.feed", "encode"), named("tui.sources.state", "snapshot")
    recording = named("devices.watching.top", "opened")(path)
    frames, states = sha256(), sha256()
    for number in range(len(recording)):
        frames.update(encode(recording.frame(number)))
        state = recording.state(number)
        states.update(encode(snapshot(state)))
        states.update(msgpack.packb([list(moment) for moment in state.trend]))
    times = sha256(msgpack.packb(recording.times)).hexdigest()
    count = len(recording)
    recording.close()
    return {"count": count, "times": times, "frames": frames.hexdigest(), "states": states.hexdigest()}


with tempfile.TemporaryDirectory() as scratch:
    found = {}
    for packed in map(Path, sys.argv[1:]):
        plain = Path(scratch) / packed.stem
        plain.write_bytes(gzip.decompress(packed.read_bytes()))
        found[packed.stem] = digests(plain)
    print(json.dumps(found, indent=1))
