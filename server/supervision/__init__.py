"""A server of several runs: one process for each run, and one address for all of them.

    run_files     the runs of a folder: their files and the settings that this server decides
    processes     the server of one run in a process: start, end, restarts, health
    requests      requests of this server to the server of a run, over its Unix socket
    switch        decides by the path of a connection's first request which run it belongs to
    accounts      callers with a token of this server, and what they may do
    rows          the list of runs, for callers with any token
    metrics       the metrics of all runs together
    app           the routes of this server itself
    supervisor    the folder, its processes and the listening socket

Imports connections, identity, web and the bodies of http. The server of a run knows of it what is in
connections/reverse_proxy.py and connections/forwarding.py, and nothing else.
"""
