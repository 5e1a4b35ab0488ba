"""The edgeflock command: files of related commands, with their options and their actions.

Other packages use only main, the entry point, which maps errors to a line and an exit code (app.py). This
package may import everything, and nothing imports it. A file imports at its top only cheap modules, and the
rest when its command runs. `edgeflock --help` reads all files, and a device's client needs neither torch nor
the server. A new command is a function here and its name in app.py.
"""

import sys

INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell."""


def main() -> None:
    """Run the command of sys.argv. Ends the process. An error is a line on stderr and an exit code."""
    try:
        from edgeflock.cli.app import run_command  # its imports take most of a second

        run_command()
    except KeyboardInterrupt:
        pass
    except SystemExit as ended:
        if ended.code != INTERRUPTED:  # typer's code for Ctrl-C, too
            raise
    else:
        return
    print("edgeflock: interrupted", file=sys.stderr)
    sys.exit(INTERRUPTED)
