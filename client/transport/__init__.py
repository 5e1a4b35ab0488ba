"""A device's line to its server. From outside: Link.

    link                 what a device asks, sends and is told, however often the line drops in between
    dialing              how a session begins: at which server, as whom, with messages of what length
    session              one session's socket: what a server says there
    home                 which of several servers is a device's own
    liveness             whether a server that says nothing is at work
    credentials          what a device shows: its credential, its certificate, a proof of its key
    downloads            graphs and the first model, which do not come through the session
    retrying             asking until there is an answer
    http, lines          the HTTP of all this; its sockets, of a limited rate

Each imports only what stands below it. Imports what is kept of a first model, joining, identity, training's
terms, protocol.
"""

from edgeflock.client.transport.link import Link

__all__ = ["Link"]
