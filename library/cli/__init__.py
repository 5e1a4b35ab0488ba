"""The edgeflock command: a file for each of its commands, with its options and what it does.

Outside, only main is used: the entry point, which maps errors to a line and an exit code (app.py). May import
everything; nothing imports it. A file imports at its top only what is cheap, and the rest when its command
runs: `edgeflock --help` reads all of them, and a device needs neither torch nor the server for its client. A
new command is a file here and its name in app.py.
"""

from edgeflock.cli.app import main

__all__ = ["main"]
