"""Settings as keywords of Server and Fleet: by names of their own, or as dicts of a section."""

import os
from collections.abc import Container, Mapping
from difflib import get_close_matches
from inspect import getfullargspec

from edgeflock.api.named import name_objects
from edgeflock.shared.errors import ConfigError

KEYWORDS = {
    "directory": "server.directory",
    "host": "server.host",
    "port": "server.port",
    "certificate": "server.certificate",
    "key": "server.key",
    "client_certificates": "server.client_certificates",
    "insecure": "server.insecure",
    "open": "server.open",
    "origins": "server.origins",
    "browsers": "server.browsers",
    "labels": "server.labels",
    "snapshot_every": "journal.snapshot_every",
    "keep_updates": "journal.keep_updates",
    "seed": "model.seed",
    "batch": "local.batch",
    "local_steps": "local.steps",
    "local_rate": "local.rate",
    "local_momentum": "local.momentum",
    "local_optimizer": "local.optimizer",
    "balance_labels": "local.balance_labels",
    "proximal": "local.proximal",
    "evaluate_every": "evaluation.every",
    "evaluate_on_devices": "evaluation.on_devices",
    "trackers": "evaluation.trackers",
    "recover": "evaluation.recover",
    "on_update": "callbacks.on_update",
    "on_evaluated": "callbacks.on_evaluated",
    "on_finding": "callbacks.on_finding",
    "stop": "callbacks.stop",
    "updates": "end.updates",
    "accuracy": "end.accuracy",
    "patience": "end.patience",
    "seconds": "end.seconds",
    "bytes": "end.bytes",
}
"""Keywords of edgeflock.Server and edgeflock.Fleet -> their settings."""

_SIMILAR = 0.75
"""The least similarity, from 0 to 1, of an unknown keyword to the one that is suggested."""

Usual = Mapping[str, Mapping[str, object]]
"""Section -> settings that keywords override."""


def sections_of(
    keywords: Mapping[str, object],
    sections: Container[str],
    usual: Usual,
    refused: Container[str],
    owner: type,
) -> dict[str, object]:
    """Return section -> its settings, of the keywords of `owner`, a class.

    `sections` are the names of all. `refused` are those that the owner takes in another way. Raises
    ConfigError.
    """
    own: dict[str, dict[str, object]] = {}
    path, names = f"edgeflock.{owner.__name__}", [*KEYWORDS, *getfullargspec(owner).kwonlyargs]
    for name, value in keywords.items():
        if name in refused:
            raise ConfigError(
                f"{path}({name}=...): settings of [fleet] go by their own names, those of [model] "
                "into edgeflock.Model; a client has its own"
            )
        if name in KEYWORDS:
            section, _, key = KEYWORDS[name].partition(".")
            if isinstance(table := keywords.get(section), Mapping) and key in table:
                raise ConfigError(f"{path}: {name}= and {section}={{{key!r}: ...}}: give one of them")
            own.setdefault(section, {})[key] = os.fspath(value) if isinstance(value, os.PathLike) else value
        elif name not in sections and (near := get_close_matches(name, names, n=1, cutoff=_SIMILAR)):
            raise ConfigError(f"{path}({name}=...): unknown setting; did you mean {near[0]}?")
    found: dict[str, object] = dict(usual)
    for name, given in name_objects({k: v for k, v in keywords.items() if k not in KEYWORDS}).items():
        found[name] = {**usual.get(name, {}), **given} if isinstance(given, dict) else given
    for section, settings in own.items():
        given = found.get(section, {})
        if isinstance(given, dict):  # else the settings' reader says that it is no section
            found[section] = {**given, **settings}
    return found
