"""The server: it hosts a model, admits updates, journals them, applies them and reports on the run.

    app, hosting         the aiohttp application, and the run in its directory
    flower               the same engine behind Flower strategies
    http, monitoring     the operators' interface: HTTP, feed, metrics, trackers, evaluation
    sessions             the sessions of devices, and the group commit
    roster               what the server knows about its devices
    connections          sockets, their limits and counts of bytes
    ledger               durable state
    engine               the path of an update, pure
    publication          what devices are sent of the model: a file for each mode
    coordination         when updates apply: a file for each mode
    descent              how updates change theta
    training_graph       torch -> ONNX, in a separate process

Each package imports only packages below it. Other packages use app.serve, hosting.run.open_run and
hosting.choices.CHOICES; fleets use the engine from `ledger` down. `edgeflock.server.flower` is public. This
module imports none of them: a Flower strategy needs no aiohttp, and a device needs nothing of the server.
"""
