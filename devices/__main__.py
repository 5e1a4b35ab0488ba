"""python -m edgeflock.devices is the edgeflock command."""

from edgeflock.devices.commands import main

main()
