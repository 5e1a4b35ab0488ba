"""Emulated fleets on one machine: the real worker and the real engine, without sockets and in virtual time.

Other packages use FleetFile and parse from config, and prepare and run_fleet from fleet. They import these
modules directly, because fleet loads torch. A run is a function of its file and seed. The package imports
server (from ledger down, and the conversation of sessions), client (training, data, backends) and numbers.
"""
