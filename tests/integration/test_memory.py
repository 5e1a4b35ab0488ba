"""What a hostile device makes a server allocate: the most that a server of its own ever had resident."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.integration.foreign_client import PULL, joined

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux")

SERVER = """
import asyncio, sys
from pathlib import Path
from tests.hosting import hosting

async def main():
    async with hosting(Path(sys.argv[1]), "limits.frame_bytes=67108864") as hosted:
        print(hosted.port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

SIZE = 60_000_000

TEXTS = b"\xdd" + (SIZE // 2).to_bytes(4, "big") + b"\xa1x" * (SIZE // 2)
FRAMES = {
    "small texts": TEXTS,
    "small texts in a field": b"\x9b\x05\x01\x00\x01\x00\x03" + TEXTS,
    "small maps": b"\x9b\x05" + b"\x81\xa1x\xa1y" * (SIZE // 5),
    "empty lists": b"\x9b\x05" + b"\x9f" + b"\x90" * SIZE,
    "lists in lists": b"\x9b\x05" + (b"\x9f" + b"\xa1x" * 14) * (SIZE // 29),
}


def most_resident(process: int) -> int:
    """Bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("Linux tells it")


def framed(payload: bytes) -> bytes:
    """Masked with zeros."""
    return b"\x82\xff" + len(payload).to_bytes(8, "big") + bytes(4) + payload


@pytest.mark.slow
async def test_a_large_message_costs_its_own_length(tmp_path: Path) -> None:
    """Not 25 times as much, whatever it announces and is made of."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    try:
        port = int(await server.stdout.readline())
        async with joined(port, "honest") as (honest, _):
            before = most_resident(server.pid)
            for name, payload in FRAMES.items():
                async with joined(port, "hostile") as (hostile, _):
                    hostile.writer.write(framed(payload))
                    assert (await hostile.answer())[1] == "malformed", name
                assert (await honest.ask([PULL, 0]))[0] == 4
                # The message, a copy of it without its mask, and what aiohttp gathers it from: nothing of the
                # one before.
                assert most_resident(server.pid) - before < 4 * SIZE, name
    finally:
        server.terminate()
        await server.communicate()  # to the end of its pipe
