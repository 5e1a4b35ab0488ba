"""The runs of one device at a server that hosts several: those that it names, or the one for its labels."""

import json
import logging
import re
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from edgeflock.client.identity import default_path, joined_runs, run_in, urls_of
from edgeflock.client.neighbour import rate_of, share_of
from edgeflock.client.transport.downloads import read_body
from edgeflock.shared.errors import ConfigError, EdgeflockError, ServerAtFault
from edgeflock.shared.identity import tls_for
from edgeflock.shared.protocol.backoff import failure_reason
from edgeflock.shared.protocol.shown import printable

if TYPE_CHECKING:  # its pydantic is a quarter of the client's import time
    from edgeflock.shared.settings.client import ClientSettings

log = logging.getLogger(__name__)

_OF_ONE_RUN = ("identity", "buffer", "keep_model", "graph_digest")
"""Settings of files, or of a graph, that two runs cannot share."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_LONGEST_LIST = 1 << 20
"""Bytes of a server's list of runs."""

_SECONDS = aiohttp.ClientTimeout(total=30)


def settings_by_run(settings: "ClientSettings") -> "dict[str, ClientSettings]":
    """Return the settings for each run that client.runs names; without any, "" with the given ones.

    Several runs share the processor and the bandwidth that the device may use. Raises ConfigError.
    """
    runs = list(dict.fromkeys(settings.runs))
    if not runs and not settings.identity and "server" not in settings.model_fields_set:
        runs = [] if default_path().exists() else joined_runs()
        if len(runs) > 1:
            raise ConfigError(f"this device has joined {', '.join(runs)}: name one or several in client.runs")
    if not runs:
        return {"": settings}
    if wrong := [name for name in runs if not _NAME.fullmatch(name)]:
        raise ConfigError(f"client.runs: {wrong[0]!r:.80} is no name of a run")
    if run_in(settings.server):
        raise ConfigError(
            f"client.server = {settings.server!r} names a run, and client.runs, too: leave the run out of it"
        )
    if len(runs) > 1 and (wrong := [key for key in _OF_ONE_RUN if getattr(settings, key)]):
        raise ConfigError(
            f"client.{wrong[0]} is for one run, and client.runs names {len(runs)}: start a client for each"
        )
    share, rate = share_of(settings.cpu), rate_of(settings.bandwidth)
    part = {
        "runs": [],
        "cpu": "" if share is None else f"{100 * share / len(runs):g}%",
        "bandwidth": "" if rate is None else f"{rate / len(runs) / 1000:g}kB/s",
    }
    return {name: settings.model_copy(update={**part, **_place_of(settings, name)}) for name in runs}


def _place_of(settings: "ClientSettings", name: str) -> dict[str, str]:
    """Return the address of a run, and the file of the device's identity there, if it has joined."""
    place = default_path(name)
    if not settings.identity and place.exists():
        return {"identity": str(place), **_address_of(settings, name)}
    return _address_of(settings, name)


def _address_of(settings: "ClientSettings", name: str) -> dict[str, str]:
    """Return the address of a run at the server in the settings; without one the identity has it."""
    if "server" not in settings.model_fields_set and default_path(name).exists():
        return {}
    return {"server": ",".join(str(url / "v1/runs" / name) for url in urls_of(settings.server))}


async def choose_by_labels(settings: "ClientSettings") -> "ClientSettings":
    """Return the settings for the one run of the server that is for a device of these labels.

    A run without labels is for every device if no other is open. Runs that are paused or have failed count
    only if no other fits. Raises ConfigError if none or several fit.
    """
    server = urls_of(settings.server)[0]
    labels = set(settings.labels)
    active, rows = await _runs_at(server, insecure=settings.insecure)
    found = _fitting(active, labels) or _fitting(rows, labels)
    if len(found) != 1:
        texts = (f"{name} ({' '.join(sorted(of_run)) or 'no labels'})" for name, of_run in rows.items())
        shown = ", ".join(texts)
        mine = " ".join(sorted(labels)) or "none"
        fit = "several of them fit" if found else "none of them fits"
        raise ConfigError(
            f"{server} hosts several runs, and {fit} this device's labels ({mine}): "
            f"{shown or 'none is open'}; name one: --run NAME"
        )
    log.info("takes part in run %s (labels: %s)", found[0], " ".join(sorted(rows[found[0]])) or "none")
    return settings.model_copy(update=_place_of(settings, found[0]))


def _fitting(rows: dict[str, set[str]], labels: set[str]) -> list[str]:
    if len(rows) == 1 and not any(rows.values()):
        return list(rows)
    return [name for name, of_run in rows.items() if of_run and of_run <= labels]


async def _runs_at(server: URL, *, insecure: bool) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the labels of each run at a server that is open to this device. Raises EdgeflockError.

    First those of the runs that are neither paused nor have failed, then those of all.
    """
    tls = tls_for(server.scheme, server.host or "", b"", insecure=insecure)
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), timeout=_SECONDS) as http,
            http.get(server / "v1/runs", allow_redirects=False) as response,
        ):
            document: Any = json.loads(await read_body(response, _LONGEST_LIST))
        rows = {
            str(row["name"]): {printable(str(label)) for label in row["labels"]} for row in document["runs"]
        }
        idle = {str(row["name"]) for row in document["runs"] if row.get("state") in ("paused", "failed")}
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise EdgeflockError(f"no list of runs: {failure_reason(str(server), error)}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ServerAtFault(f"{server} lists its runs in a form that is not known") from error
    named = {name: labels for name, labels in rows.items() if _NAME.fullmatch(name)}
    return {name: labels for name, labels in named.items() if name not in idle}, named
