"""A client process: it trains according to its settings until the run is over.

    process              runs one device, from its settings to its last message
    building             opens the data, and makes a trainer of the run's model from a Welcome
    model_keeper         keeps the run's best model for the device's own programs
    choosing             chooses the backend that the owner and the machine allow, or a program's objects

Each imports only modules below it in this list. Imports all of the client.
"""

from edgeflock.client.run.choosing import ClientObjects
from edgeflock.client.run.process import run_client
