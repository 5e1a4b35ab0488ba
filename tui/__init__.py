"""The terminal monitor. It reads a server's HTTP interface only.

Four rooms, each of which knows those after it and none before it:

    screen    `edgeflock top` as an application: the only room that imports textual
    pages     what a screen shows: pure functions from a state to lines
    sources   where states come from: a live server or a recording
    text      lines, numbers and charts, whatever they are of

Whoever is not the monitor imports from the doors of the rooms; this one hands out nothing, so that it costs
nothing. A new page is a file in `pages`, a name in `pages/header.py`, a widget in `screen/widgets.py` and a
key in `screen/run_view.py`; a new way to watch a run is a file in `sources` that is a `Source`.
"""
