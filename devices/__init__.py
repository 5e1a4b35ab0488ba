"""Kinds of devices: measured profiles, emulated fleets, an installer, and how large their servers must be.

    capacity     how many servers, gateways and shards a fleet needs, from measured costs
    emulation    fleets of a profile's devices, in virtual time
    profiles     classes of devices, measured
    install      a script and systemd units that make a machine a device

Each package imports only server, client, tui and shared.
"""
