"""The terminal monitor. It reads a server's HTTP interface only.

It has four packages. Each imports only from those below it:

    screen    the application `edgeflock top`: the only package that imports textual
    pages     the contents of a screen: pure functions from a state to lines
    sources   the states of a run: from a live server or a recording
    text      lines, numbers and charts of any content

Other packages import from the __init__ of these four. This file imports nothing, so that it costs nothing. A
new page is a file in `pages`, a name in `pages/header.py`, a widget in `screen/widgets.py` and a key in
`screen/run_view.py`. A new way to watch a run is another class of `Source` in `sources`.
"""
