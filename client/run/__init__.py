"""A client process: settings in, training until the run is over.

    process              one device, from its settings to its last words
    building             what is made of a Welcome: a trainer of the run's model
    holding              what the device trains on: stored data, streams, shards, samples of others
    choosing             which backend trains, as far as its owner and its machine allow
    given                what a program has at hand that settings cannot name

Each imports only what stands below it. Imports all of the client.
"""

from edgeflock.client.run.process import run_client
from edgeflock.client.run.program_objects import ClientObjects

__all__ = ["ClientObjects", "run_client"]
