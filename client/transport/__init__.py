"""A device's connection to its server. Other packages use Link.

    link                 requests and answers, across reconnects
    dialing              starts a session: a device's own server, credentials, message length
    session              the socket of one session, and checks of its messages
    liveness             checks whether a silent server is alive
    credentials          a device's credential, certificate and proof of its key, and how it joins
    downloads            downloads of graphs and files, over plain HTTP
    cached_file          a file that is downloaded once, and kept by its digest
    first_model          the first model as such a file
    retrying             retries requests until there is an answer
    http                 the HTTP client, with a rate limit

Imports neighbour, identity, training's terms and protocol.
"""

from edgeflock.client.transport.link import Link
