"""Hosting: the run in its directory, with model, data, identities, and the restored engine.

    run               opens or resumes the run, and has all that the application needs
    model             the model and its evaluation: a torch module, or a file of arrays
    weights, arrays   the first model: of the module, a file or another run; of a file of arrays
    trusting          the gradients that a defence trusts
    choices           the names that settings may have
    background        the tasks of a server that leads
    standby           a server that does not lead
    tls               TLS and certificates for devices' connections
    program_objects   objects of a program that settings cannot name

Each module is imported by itself: settings need `choices` alone. torch is imported when a model needs it.
"""
