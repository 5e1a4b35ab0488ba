"""A run from outside: what `edgeflock status`, `top` and `plot` show of a server, recording or journal.

Commands use status.show_status, text.show_device, top.show and serve_web, and plot.plot.
They import these modules directly: each loads a
different library (aiohttp, textual, matplotlib). May import results and the packages below it.
"""
