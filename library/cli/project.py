"""`edgeflock init`, `check` and `config`: start a project, test it, and list all settings."""

import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeflock.cli.options import (
    PROJECT,
    ConfigFile,
    Json,
    Set,
    Verbose,
    client_flags,
    load_settings,
    print_json,
    read_text,
    require,
)
from edgeflock.shared.errors import ConfigError

if TYPE_CHECKING:
    from edgeflock.projects.range_test import RangeTest


def check(
    config: ConfigFile = None,
    data: Annotated[str | None, typer.Option(help="What a device would train on [client.data].")] = None,
    set_: Set = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the proposed learning rate to CONFIG.toml.")
    ] = False,
    json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check data and model together: take a step, export it, and show the cost of an update and a step.

    A range test finds a learning rate for the model, the data and the optimizer, in about 10 seconds of one
    core, or in 25 steps of a slow model. No server runs, and nothing is written but by --write. Without
    CONFIG.toml the settings are those of edgeflock.toml, if that is in this folder.
    """
    with require("server", "a check needs"):
        from edgeflock.client.data.open import is_stored
        from edgeflock.server.hosting.choices import CHOICES
        from edgeflock.shared.data import datasets
        from edgeflock.shared.environments import is_environment

        if config is None and PROJECT.is_file():
            config = PROJECT
        settings = load_settings(config, [*(set_ or []), *client_flags(data=data)], verbose, CHOICES)
        if not json:
            print("checking; without other work on this machine it takes up to 20 seconds", file=sys.stderr)
        with redirect_stdout(sys.stderr):  # the user's module may print
            read, client = cache(datasets.read), settings.client
            named = {"test": settings.model.data, "train": client.data * ("data" in client.model_fields_set)}
            for split, data in named.items():
                if is_stored(data):  # missing data are reported before torch is imported, which takes seconds
                    read(data, split)
            from edgeflock.projects.acting import PolicyCheck, check_policy
            from edgeflock.projects.checking import ProjectCheck, check_project

            found: ProjectCheck | PolicyCheck
            if is_environment(settings.model.data):
                found = check_policy(settings)
            else:
                found = check_project(settings, read, tests_rate=True)
    if json:
        print_json({**asdict(found), "advice": list(found.advice())})
    else:
        for line in found.lines():
            print(line)
    if write:
        _write(config, found.rate, settings.local.optimizer)


def _write(path: Path | None, rate: "RangeTest | None", optimizer: str) -> None:
    """Write the proposed rate into the settings, with the devices' optimizer that it belongs to.

    Without that setting, a rate is SGD's. Raises ConfigError.
    """
    from edgeflock.projects.beginning import replace_setting
    from edgeflock.shared.files import write_atomically

    if path is None:
        raise ConfigError("--write: there is no file of settings; name CONFIG.toml")
    if rate is None or rate.proposed is None:
        raise ConfigError(f"--write: {rate.advice if rate else 'no learning rate was tested'}")
    text = replace_setting(read_text(path), str(path), rate.key, rate.proposed)
    if optimizer != "sgd":
        text = replace_setting(text, str(path), "local.optimizer", optimizer)
    path = path.resolve()  # write the target of a link
    try:
        mode = path.stat().st_mode
        write_atomically(path, text.encode())
        path.chmod(mode)
    except OSError as error:
        raise ConfigError(f"--write: {path} cannot be written: {error.strerror}") from error


def init(
    directory: Annotated[Path, typer.Argument(help="Folder of the project.")] = Path("."),
    data: Annotated[
        str,
        typer.Option(
            help="Data to evaluate on, e.g. 'csv:held_out.csv?label=COLUMN'; with '&held=0.2' a fifth of "
            "them, and the rest to train on. None: made-up data."
        ),
    ] = "",
) -> None:
    """Create a project: settings, a model that fits the data, and the next steps.

    Without held= the file is the server's alone, and each device names data of its own.
    """
    from edgeflock.projects.beginning import create_project
    from edgeflock.shared.data.datasets import has_splits

    project = create_project(directory, data)
    project.write()
    for remark in project.remarks:
        print(f"look at this: {remark}", file=sys.stderr)
    print(f"wrote {', '.join(str(directory / name) for name in project.files)}", file=sys.stderr)
    if project.samples:
        print(project.samples, file=sys.stderr)
    if data and not has_splits(data):
        print(
            f"{data} is held out, for the server to evaluate on. Devices train on other rows: "
            "edgeflock client --data URI",
            file=sys.stderr,
        )
    change_folder = "" if directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    print(f"Go on with: {change_folder}edgeflock check edgeflock.toml", file=sys.stderr)


def config(
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Print which settings need others, and why.")
    ] = False,
) -> None:
    """Print every setting with its default, as a TOML file in which they are comments."""
    if matrix:
        from edgeflock.shared.settings.combinations import markdown

        print(markdown(), end="")
        return
    from edgeflock.shared.settings.config import describe

    print(describe())
