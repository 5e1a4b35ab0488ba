"""The front door: the command line, and whatever hosts both ends.

    commands             a file a command
    doctor               `edgeflock doctor` and `edgeflock report`
    papers               what `edgeflock reproduce` runs: a folder a paper
    quickstart           a server and clients as processes of this machine
    projects             `edgeflock init` and `edgeflock check`
    library              what `import edgeflock` hands out
    watching             status, top, plot
    results              what fleets came to: sweeps, curves, reports
    emulation            fleets in virtual time
    numbers              figures for people
    profiles             classes of devices, measured

Each imports only what stands below it, and server, client, tui and shared.
"""
