"""What both ends agree on.

    settings             every setting: declared, read, checked
    protocol             records, frames, their bytes; back-off
    codecs               indices and values as bytes
    selection            what of a gradient to send
    data                 data sets, rates of streams
    model                the layout of theta, torch modules as flat vectors
    plugins              what other packages add to tables, by entry points
    errors               the error tree

Settings may import all the others, the next four only what stands below. No sockets, no event loop, and only
the readers of data read files. Rooms are imported by file (`from edgeflock.shared.codecs import sparse,
values`): a device loads what it needs and no more.
"""
