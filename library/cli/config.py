"""`edgeflock config`: every setting with its default, and the settings that exclude each other."""

from typing import Annotated

import typer


def config(
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Print which settings need others, and why.")
    ] = False,
) -> None:
    """Print every setting with its default, as a TOML file."""
    if matrix:
        from edgeflock.shared.settings.combinations import markdown

        print(markdown(), end="")
        return
    from edgeflock.shared.settings.config import describe

    print(describe())
