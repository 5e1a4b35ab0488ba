"""The objects that `import edgeflock` provides: a module for each, or for a few that belong together.

    server       Server: a run and its server, in a context
    client       Client: a device in this process
    fleet        Fleet: an emulated fleet
    figure       plot: the curves of runs
    result       Result: a trained model; Evaluated: a run with its evaluations
    model        Model: a torch module with its loss
    graphs       Graphs: a model in ONNX
    data         data in memory as a data set, and dealing them out
    functions, named, opening    helpers: functions to call, objects for names, a context in a thread

library/__init__.py exports these names. The commands use them too. The package may import emulation, results,
server, client and shared. It changes no state of the process: signals, threads, the garbage collector and
logging belong to the program or the command. This file imports nothing, so each module loads what it needs.
"""
