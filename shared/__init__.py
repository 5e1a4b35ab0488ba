"""Code that the server and the clients have in common.

    settings             every setting: declared, read, checked
    protocol             records, frames, their bytes; back-off
    codecs               coding of indices and values as bytes
    selection            choice of the gradient entries to send
    data                 data sets, rates of streams
    model                the layout of theta, torch modules as flat vectors
    plugins              tables that other packages extend by entry points
    errors               the error tree

`settings` may import all the others; the next four import only what is listed below them. No code here uses
sockets or an event loop. Only the readers of `data` read files. Import the modules by file (`from
edgeflock.shared.codecs import sparse, values`), so that a device loads only what it needs.
"""
