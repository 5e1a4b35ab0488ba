"""The edgeflock command: files of related commands, with their options and their actions.

Other packages use only main, the entry point, which maps errors to a line and an exit code (app.py). This
package may import everything, and nothing imports it. A file imports at its top only cheap modules, and the
rest when its command runs. `edgeflock --help` reads all files, and a device's client needs neither torch nor
the server. A new command is a function here and its name in app.py.
"""

from edgeflock.cli.app import main
