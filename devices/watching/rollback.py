"""A model rolled back, from where an operator sits."""

import json
from typing import Any

import aiohttp

from edgeflock.devices.watching.status import NOT_KNOWN, tls_of
from edgeflock.shared.errors import ConfigError, EdgeflockError, Unauthorized


async def roll_back(server: str, token: str, version: int) -> dict[str, Any]:
    """{"of", "version"}: the version that the model is of now, and its own. It takes the admin token.

    Raises EdgeflockError if the server does not do it.
    """
    body = {"version": version}
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = aiohttp.ClientTimeout(total=600)  # updates since a snapshot are replayed
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.post(
                f"{server.rstrip('/')}/v1/rollback", headers=headers, json=body, ssl=tls_of(server, token)
            ) as response,
        ):
            text = await response.text()
            if response.status == Unauthorized.status:
                raise Unauthorized(NOT_KNOWN)
            try:
                answer = json.loads(text)
            except ValueError:
                answer = {}
            if response.status != 200 or not isinstance(answer, dict):
                detail = answer.get("detail") if isinstance(answer, dict) else None
                raise EdgeflockError(str(detail or f"{server} answered {response.status} {response.reason}"))
            return answer
    except aiohttp.InvalidURL as error:
        raise ConfigError(f"client.server {server!r} must be a URL such as http://192.0.2.1:8470") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EdgeflockError(
            f"no answer from {server}: {error or type(error).__name__}; does it run, and is that its address?"
        ) from error
