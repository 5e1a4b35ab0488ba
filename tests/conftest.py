"""How the tests run here: on all cores, and in no hurry, because no test says anything about time."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# Before numpy is loaded, also by the workers: as many processes as cores, and one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# On a busy machine a client that gives way comes to nothing.
os.environ["EDGEFLOCK_CLIENT__LOW_PRIORITY"] = "false"

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.postgres import Cluster

# The same examples everywhere: a change is judged by what it changes.
settings.register_profile(
    "edgeflock", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("edgeflock")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What clients keep there is none of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _tables_as_they_were() -> Iterator[None]:
    """What a test chooses or gives is no choice of the next one."""
    from edgeflock.client.data.sources.opening import SOURCES
    from edgeflock.server.hosting.choices import CHOICES
    from edgeflock.shared.codecs import sparse, values
    from edgeflock.shared.model.losses import LOSSES
    from edgeflock.shared.plugins import Table

    known = (*CHOICES.values(), LOSSES, sparse.CODINGS, values.CODINGS, SOURCES)
    tables = [one for one in known if isinstance(one, Table)]
    before = [(one._entries.copy(), one._registered.copy(), one._process_local.copy()) for one in tables]
    yield
    for table, was in zip(tables, before, strict=True):
        table._entries, table._registered, table._process_local = was


@pytest.fixture(autouse=True)
def _log_level_as_it_was() -> Iterator[None]:
    """A command that ran in this process chose what is logged: the next test logs as if it had not."""
    log = logging.getLogger("edgeflock")
    before = log.level
    yield
    log.setLevel(before)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Use a process for each core, unless -n or --dist says otherwise.

    A file or a test alone runs in this process: it starts at once, and a debugger can stop it. This is not
    among the `addopts`, so that `-p no:xdist` and an environment without pytest-xdist still work.
    """
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    alone = all(Path(argument.partition("::")[0]).is_file() for argument in config.args)
    if config.option.numprocesses is None and config.option.dist == "no" and not alone:
        config.option.numprocesses, config.option.dist = "auto", "worksteal"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Notebooks first: last, one process would wait for the other's."""
    items.sort(key=lambda item: "test_notebooks" not in item.nodeid)


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Cluster]":
    """A PostgreSQL for all tests of this process, each of which takes a schema of its own."""
    from tests.postgres import cluster

    with cluster() as made:
        yield made
