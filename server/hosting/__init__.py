"""Hosting: the run in its directory, with model, data, identities, and the restored engine.

    run               opens or resumes the run, and has all that the application needs
    model             the model and its evaluation: a torch module, or a file of arrays
    tls               TLS and certificates for devices' connections
    program_objects   objects of a program that settings cannot name

A standby (standby.py), which has no run yet, also uses `tls`. Only model imports torch, when it needs it.
"""

from edgeflock.server.hosting.program_objects import ServerObjects
from edgeflock.server.hosting.run import HostedRun, open_run

__all__ = ["ServerObjects", "HostedRun", "open_run"]
