"""The client: it trains on a device and sends updates to the server.

    run, flower          a native device; a mod for Flower ClientApps
    transport            the connection to the server, and how a device joins
    neighbour            limits in favour of other programs on the machine
    identity             the credentials that a device keeps
    machine              the state of the device, its kind and its default name
    zoo                  reference models (servers send the name: `edgeflock.client.zoo:Name`)
    training             pull, step, select, encode, push: the parts without I/O, and the loop
    data                 stored data and live streams
    backends             gradient computation: torch or onnxruntime

Each package imports only packages below it in this list. Other code uses run.run_client, run.ClientObjects,
flower.compress and zoo; fleets use training, data and backends. This module imports none of them, so
`edgeflock --version` stays light.
"""
