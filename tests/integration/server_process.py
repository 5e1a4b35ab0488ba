"""A server in a process of its own, which a test may kill or stop.

`python -m tests.integration.server_process DIRECTORY PORT RUN`. It ends at SIGTERM as a server does.
"""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.hosting import RUN, hosting

_LISTENS = b"listens\n"


async def _serve(directory: Path, port: int, run: str) -> None:
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    async with hosting(directory, closed=True, port=port, run=run):
        print(_LISTENS.decode(), end="", flush=True)
        await end.wait()


@asynccontextmanager
async def server_process(
    directory: Path, port: int, run: str = RUN
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The server of this directory, which listens; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(directory), str(port), run, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None, "a pipe"
        assert await process.stdout.readline() == _LISTENS
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
