"""The client: trains on a device, and pushes what it learned.

    run, flower          a device of our own; a mod for Flower ClientApps
    transport            its line to the server
    joining, identity    how it came to be known there, and what it keeps of that; servers: where that is
    health, machine      how the device does, and what it is
    zoo                  reference models (the name travels: models are `edgeflock.client.zoo:Name`)
    first_model          what is kept of one, and checked
    neighbour            what it leaves to others on its machine; allowance: so much a second
    spool                the update that is under way, on disk
    training             pull, step, select, encode, push: the pure part and its loop
    data                 stored data and live streams
    backends             what computes a gradient: torch or onnxruntime

Each imports only what stands below it. From outside: run's run_client and Given, flower.compress, zoo; fleets
use training, data and backends. This door opens none: `edgeflock --version` on a device loads nothing of it.
"""
