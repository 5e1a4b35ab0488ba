"""The runs of a folder: a file NAME.toml or NAME/server.toml each. A run's data are in the folder NAME."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgeflock.shared.errors import ConfigError
from edgeflock.shared.settings.config import Config, parse

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a run may be called: it is a part of URLs and of paths."""

OWN = "edgeflock"
"""edgeflock.toml has the settings of the server itself."""

ARCHIVE = "archive"
"""The folder of runs that were archived."""

_RESERVED = frozenset((OWN, ARCHIVE))

_DECIDED = ("directory", "host", "port", "certificate", "key")
"""Settings of [server] that the server of several runs decides for all of them."""


@dataclass(frozen=True, slots=True)
class RunFile:
    """The settings file of one run."""

    name: str
    path: Path
    directory: Path
    """The folder of the run's data."""
    edition: tuple[int, int] = (0, 0)
    """Differs once the file has changed."""

    def settings(self) -> Config:
        """Return the run's settings. Raises ConfigError, also for settings that are the server's."""
        try:
            text = self.path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path}: cannot be read: {error}") from error
        config = parse(text, str(self.path))
        for key in _DECIDED:
            if key in config.server.model_fields_set:
                raise ConfigError(
                    f"{self.path}: server.{key} is decided for all runs of the folder: leave it out here"
                    + ("" if key == "directory" else f", and set it in {OWN}.toml")
                )
        return config


def run_files(folder: Path) -> dict[str, RunFile]:
    """Return the runs of a folder by name. A NAME.toml counts before a NAME/server.toml. Raises OSError."""
    found = {}
    for name, path in _named(folder):
        if _may_name(name):
            facts = path.stat()
            found[name] = RunFile(name, path, folder / name, (facts.st_mtime_ns, facts.st_size))
    return found


def misnamed_files(folder: Path) -> set[Path]:
    """Return the settings files whose name is no run's, hidden ones left out. Raises OSError."""
    found = {path for name, path in _named(folder) if not _may_name(name)} - {folder / f"{OWN}.toml"}
    found |= {path for path in folder.glob("*.[Tt][Oo][Mm][Ll]") if path.suffix != ".toml" and path.is_file()}
    places = {path: path.relative_to(folder).parts[0] for path in found}
    return {path for path, place in places.items() if not place.startswith(".") and place != ARCHIVE}


def _named(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of each settings file. Raises OSError."""
    os.scandir(folder).close()  # glob finds nothing where the folder is gone for a while, or unreadable
    for path in [*folder.glob("*/server.toml"), *folder.glob("*.toml")]:
        if path.is_file():
            yield path.stem if path.parent == folder else path.parent.name, path


def _may_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None and name not in _RESERVED
