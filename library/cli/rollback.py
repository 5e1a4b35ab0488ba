"""`edgeflock rollback`: go on from an earlier version of the model."""

from typing import Annotated

import typer

from edgeflock.cli.options import Json, Set, Token, TokenFile, Url, connection_of, print_json


def rollback(
    version: Annotated[int, typer.Argument(min=0, help="The version to go back to.")],
    url: Url = None,
    token: Token = None,
    token_file: TokenFile = None,
    set_: Set = None,
    json: Json = False,
) -> None:
    """Let a running server go on from an earlier version of its model, which becomes the next version.

    It needs the admin token. Nothing is lost: receipts stay valid, versions count on, and a rollback can be
    rolled back, too. Devices receive the whole model and go on.
    """
    server, secret = connection_of(url, token, token_file, set_)
    import asyncio

    from edgeflock.operations.status import roll_back

    done = asyncio.run(roll_back(server, secret, version))
    if json:
        print_json(done)
        return
    if done["of"] != version:
        print(f"Version {version} is in the middle of a round, which started from version {done['of']}.")
    print(f"The model is that of version {done['of']:,} again, as version {done['version']:,}.")
