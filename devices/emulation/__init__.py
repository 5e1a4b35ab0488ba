"""Fleets on one machine: the real worker and the real engine; only sockets and seconds are made up.

Others use config.FleetFile and parse, and fleet.prepare and run_fleet; by file and room, since fleet
brings torch. A run is a function of its file and seed. Imports server (from ledger down, and
sessions.settle), client (training, data, backends), numbers.
"""
