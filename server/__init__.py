"""The server: hosts a model, admits updates, journals them, applies them, and shows what it does.

    app, hosting         the aiohttp application, and the run in its directory
    flower               the same engine behind Flower strategies
    operations           what operators ask and do: HTTP, feed, metrics, trackers, evaluation
    sessions             a device's line, and the group commit
    roster               what the server knows of its devices
    doors                what a connection may cost before it is believed
    ledger               what is durable
    engine               the path of an update, pure
    publication          what devices are sent of the model: a file a mode
    coordination         when updates apply: a file a mode
    descent              how they change theta
    training_graph       torch -> ONNX, in a process of its own

Each imports only what stands below it. Outside this package the server is app.serving,
hosting.open_run and choices.CHOICES; fleets use the engine from `ledger` down. `edgeflock.server.flower` is
public. This door opens none: a Flower strategy needs no aiohttp, a device none of it.
"""
