"""A run from outside: what `edgeflock status`, `top` and `plot` show of a server, a recording or a journal.

Outside, the commands use status.show_status, text.watch and text.show_device, top.Plan, show and serve_web,
and plot.plot; who asks a server over HTTP uses status.fetch. They are imported from their files: each
brings a library of its own (aiohttp, textual, matplotlib), and who wants one shall not pay for the others.
May import results and what stands below.
"""
