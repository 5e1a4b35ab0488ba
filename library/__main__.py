"""python -m edgeflock is the edgeflock command."""

from edgeflock.cli import main

main()
