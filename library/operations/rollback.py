"""Rollback of a model by an operator."""

import json
from typing import Any

import aiohttp

from edgeflock.operations.status import NOT_KNOWN, complaint, tls_of
from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized
from edgeflock.tui.sources import body_of


async def roll_back(server: str, token: str, version: int) -> dict[str, Any]:
    """Roll back the model with the admin token. Return {"of", "version"}: its source version and its new one.

    Raises EdgeflockError if the server does not do it.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=600)  # the server replays updates since a snapshot
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.post(
                f"{server.rstrip('/')}/v1/rollback",
                headers=headers,
                json={"version": version},
                ssl=tls_of(server, token),
            ) as response,
        ):
            body = await body_of(response)
            if response.status == Unauthorized.status:
                raise Unauthorized(NOT_KNOWN)
            try:
                answer = json.loads(body)
            except (ValueError, RecursionError):
                answer = None
            if response.status != 200 or not isinstance(answer, dict):
                raise EdgeflockError(complaint(response, body))
            return answer
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"client.server {server!r} must be a URL such as http://192.0.2.1:8470") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EdgeflockError(
            f"no answer from {server}: {str(error) or 'it says nothing'}; "
            "does it run, and is that its address?"
        ) from error
