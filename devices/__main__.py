"""python -m edgeflock.devices is the edgeflock command."""

from edgeflock.devices.cli import main

main()
