"""A client process: it trains according to its settings until the run is over.

    process              runs one device, from its settings to its last message
    building             makes a trainer of the run's model from a Welcome
    holding              opens the data: stored data, streams, data shards, samples of others
    choosing             chooses the backend that the owner and the machine allow
    program_objects      objects of a program that settings cannot name

Each imports only modules below it in this list. Imports all of the client.
"""

from edgeflock.client.run.process import run_client
from edgeflock.client.run.program_objects import ClientObjects

__all__ = ["ClientObjects", "run_client"]
