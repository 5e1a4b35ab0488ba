"""The client: trains on a device, and pushes what it learned.

    run, flower          a device of our own; a mod for Flower ClientApps
    transport, health    its line to the server; how the device does
    zoo                  reference models (the name travels: models are `edgeflock.client.zoo:Name`)
    downloads            graphs and the first model, which do not come through the session
    first_model          what is kept of one, and checked
    retrying             asking until there is an answer
    neighbour            what it leaves to others on its machine; lines, allowance: of a limited rate
    spool                the update that is under way, on disk
    training             pull, step, select, encode, push: the pure part and its loop
    data                 stored data and live streams
    backends             what computes a gradient: torch or onnxruntime

Each imports only what stands below it. From outside: run.run_client and Given, flower.compress, zoo; fleets
use training, data and backends. This door opens none: `edgeflock --version` on a device loads nothing of it.
"""
