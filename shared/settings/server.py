"""[server], [journal] and [scale]: the server, its journal, and the processes of its model."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from edgeflock.shared.settings.client import parse_labels
from edgeflock.shared.settings.settings import Section, split_list


class ServerSettings(Section):
    """The server: its folder, its address, and who may use it."""

    directory: str = "edgeflock-run"
    """folder of the run: its journal, keys, tokens and devices"""
    host: str = "127.0.0.1"
    """address to listen on; 127.0.0.1: for this machine only, 0.0.0.0: for all"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8470
    """TCP port to listen on; 0: any free one"""
    certificate: str = ""
    """PEM file of the TLS certificate; empty: the server makes its own; without server.key: that of a proxy
    in front of the server"""
    key: str = ""
    """PEM file of the certificate's private key; empty: the server or the proxy has it"""
    client_certificates: Literal["", "devices", "everybody"] = ""
    """who must show, over TLS, the certificate that a device gets when it joins; empty: nobody"""
    insecure: bool = False
    """allow plain HTTP to other machines"""
    open: bool = False
    """let everybody who reaches the server train and watch without a token"""
    browsers: bool = False
    """let browsers take part: serve the training page at /train (edgeflock browsers install)"""
    origins: list[str] = []
    """other web origins whose pages may watch and act, e.g. https://flock.example.org; empty: none"""
    labels: list[str] = []
    """labels NAME=VALUE of devices that this run is for if they name no run, where a server hosts several;
    empty: none"""

    _from_one_line = field_validator("origins", "labels", mode="before")(split_list)

    @field_validator("labels")
    @classmethod
    def _check_labels(cls, labels: list[str]) -> list[str]:
        parse_labels(labels)
        return labels

    @field_validator("origins")
    @classmethod
    def _check_origins(cls, origins: list[str]) -> list[str]:
        """Return them as a browser writes them: in lower case, without a path. Raises ValueError."""
        for origin in origins:
            if not re.fullmatch(r"https?://([^\s/?#@:*\[\]]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?", origin):
                raise ValueError(f"{origin!r} must be a scheme and a host, e.g. https://flock.example.org")
        return [origin.lower() for origin in origins]


class JournalSettings(Section):
    """The database of the run: what it keeps, and the lease of its writer."""

    url: str = ""
    """sqlite:PATH or postgresql://HOST/DATABASE; empty: journal.sqlite in server.directory"""
    lease: Annotated[float, Field(ge=1, le=3600)] = 5.0
    """seconds without an answer of PostgreSQL after which another server may take over the run"""
    snapshot_every: Annotated[int, Field(ge=1)] = 1000
    """updates from one snapshot of the model in the journal to the next; a restart replays at most so many"""
    keep_updates: bool = True
    """keep update records in the journal that no restart needs, to go back to any version"""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        kind, _, rest = url.partition(":")
        if url and (kind not in ("sqlite", "postgresql", "postgres") or not rest):
            raise ValueError(
                f"{kind}:... is no URL of a journal; use sqlite:PATH or postgresql://HOST/DATABASE"
            )
        return url


class ScaleSettings(Section):
    """A model that is too large for one process (extra ray)."""

    shards: Annotated[int, Field(ge=0, le=1024)] = 0
    """processes that hold a part of the parameters each; 0: the server process holds them all"""
    ray: str = ""
    """for shards: HOST:PORT of a Ray cluster that this machine is in, or auto to find it; empty: start a new
    one"""

    @field_validator("ray")
    @classmethod
    def _check_address(cls, ray: str) -> str:
        if ray not in ("", "auto") and not re.fullmatch(r"[^\s:/]+:[0-9]{1,5}", ray):
            raise ValueError("must be HOST:PORT of a cluster that this machine is in, auto, or empty")
        return ray
