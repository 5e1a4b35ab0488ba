"""`edgeflock status` of one device, from the feed of `edgeflock top`: its page as text or JSON."""

import asyncio
import json
import shutil
from contextlib import suppress
from typing import Any

from edgeflock.shared.errors import EdgeflockError
from edgeflock.shared.protocol import feed
from edgeflock.shared.protocol.frames import COLUMNS, DeviceRow, Point
from edgeflock.tui.pages import device_page
from edgeflock.tui.sources import FeedClient, MonitorState, reduce
from edgeflock.tui.text import plain_text


async def first_state(client: FeedClient) -> MonitorState | None:
    """The state after the first frame; None if the server has no feed."""
    with suppress(EdgeflockError):
        async for octets in client.frames():
            return reduce(None, feed.decode(octets))
    return None


def show_device(server: str, token: str, name: str, *, as_json: bool) -> None:
    """Print a device and its recent updates."""

    async def get() -> tuple[DeviceRow, tuple[Point, ...], MonitorState | None]:
        client = FeedClient(server, token)
        return (*await client.device(name), await first_state(client))

    row, points, state = asyncio.run(get())
    if as_json:
        device: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
        print(json.dumps({"device": device, "history": [point._asdict() for point in points]}))
    elif state is None:
        raise EdgeflockError(f"{server} has no feed; try --json")
    else:
        width, height = shutil.get_terminal_size((100, 40))
        print(plain_text(device_page(state, row, points, width, height)))
