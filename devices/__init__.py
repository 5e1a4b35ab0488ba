"""The front door: the command line, device profiles, and fleets that host both ends."""
