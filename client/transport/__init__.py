"""A device's connection to its server. Other packages use Link.

    link                 requests and answers, across reconnects
    dialing              starts a session: server, credentials, message length
    session              the socket of one session, and checks of its messages
    home                 selects a device's own server among several
    liveness             checks whether a silent server is alive
    credentials          a device's credential, certificate and proof of its key
    downloads            downloads of graphs and the first model, over plain HTTP
    retrying             retries requests until there is an answer
    http, rate_limit          the HTTP client; sockets with a rate limit

Each imports only modules below it in this list. Imports first_model, joining, identity, training's terms,
protocol.
"""

from edgeflock.client.transport.link import Link

__all__ = ["Link"]
