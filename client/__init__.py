"""The client: it trains on a device and sends updates to the server.

    run, flower          a native device; a mod for Flower ClientApps
    transport            the connection to the server
    joining, identity    how a device joins, and the credentials it keeps; servers: the servers' addresses
    health, machine      the state of the device; a description of its hardware
    zoo                  reference models (servers send the name: `edgeflock.client.zoo:Name`)
    first_model          the first model: its file and its checks
    neighbour            limits in favour of other programs on the machine; allowance: a rate per second
    spool                the pending update, on disk
    training             pull, step, select, encode, push: the parts without I/O, and the loop
    data                 stored data and live streams
    backends             gradient computation: torch or onnxruntime

Each package imports only packages below it in this list. Other code uses run.run_client, run.ClientObjects,
flower.compress and zoo; fleets use training, data and backends. This module imports none of them, so
`edgeflock --version` stays light.
"""
