"""What `import edgeflock` hands out: a file for each name, or for a few that belong together.

    server       Server: a run and what serves it, while a context lasts
    client       Client: a device in this process
    fleet        Fleet: an emulated one
    figure       plot: the curves of runs
    result       Result: a model that was trained; Evaluated: a run by its evaluations
    model        Model: what is trained
    graphs       Graphs: a model in ONNX
    data         data at hand as a data set, and dealt out
    ways         AdaComp, Buffered, Adam and the like: ways to coordinate and to step
    functions, named, opening    what these share: functions to call, objects for names, a context in a thread

The door is library/__init__.py, at the top. Commands host and train through these, too. May import emulation,
results, server, client and shared. Of the process nothing is changed here: signals, threads, the garbage
collector and logging are the program's, or the command's. This door opens none: each brings what it needs.
"""
