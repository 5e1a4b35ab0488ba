"""A run without a model that is evaluated, as benchmarks serve it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from edgeflock.server.hosting.model import ModelSetup
from edgeflock.server.hosting.run import HostedRun
from edgeflock.server.identity import Audit, Register
from edgeflock.server.ledger import Claim


@contextmanager
def hosted_run(claim: Claim, directory: Path, name: str = "") -> Iterator[HostedRun]:
    """The run that is claimed in `directory`, under its own name or `name`."""
    history, accounts = claim.journal.evaluations(), claim.journal.accounts()
    with closing(Register(directory)) as register:
        model = ModelSetup()
        yield HostedRun(name or claim.run, register, Audit(directory), claim.engine, model, history, accounts)
