"""A server process without a model: python -m benchmarks.faults.server DIRECTORY HOST PORT [SETTING ...]."""

import asyncio
import sys
from pathlib import Path

from benchmarks.audit import REGIME, initial_theta
from benchmarks.hosting import hosted_run
from benchmarks.plain import EXACT
from benchmarks.updates import LAYOUT
from edgeflock.server.app import create_app, listen
from edgeflock.server.ledger import claim_run
from edgeflock.shared.settings.config import parse

SETTINGS = (
    *EXACT,
    "server.open=true",
    "model.data=",
    f"coordination.window={REGIME.window}",
    f"coordination.learning_rate={REGIME.learning_rate}",
    f"coordination.rule={REGIME.rule}",
)
"""A server that benchmarks.audit can follow."""


async def serve(directory: Path, host: str, port: int, settings: tuple[str, ...]) -> None:
    """Until it is ended. Prints a line once it listens."""
    config = parse(overrides=[*SETTINGS, *settings])
    claim_of = claim_run(directory, "directory", LAYOUT, initial_theta(), config)
    with claim_of as claim, hosted_run(claim, directory, "faults") as hosted:
        async with listen(create_app(config, hosted), host, port):
            print("listening", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    directory, host, port, *more = sys.argv[1:]
    asyncio.run(serve(Path(directory), host, int(port), tuple(more)))
