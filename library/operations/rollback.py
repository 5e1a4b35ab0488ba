"""Rollback of a model by an operator."""

from typing import Any

from edgeflock.tui.sources import FeedClient


async def roll_back(server: str, token: str, version: int) -> dict[str, Any]:
    """Roll back the model with the admin token. Return {"of", "version"}: its source version and its new one.

    Raises EdgeflockError if the server does not do it.
    """
    return await FeedClient(server, token).roll_back(version)
