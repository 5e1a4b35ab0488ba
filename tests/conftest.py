"""How the tests run here: on all cores, and in no hurry, because no test says anything about time."""

import gc
import hashlib
import logging
import os
import sys
import zlib
from collections.abc import Generator, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before numpy is loaded, also by the workers: as many processes as cores, and one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# On a busy machine a client that gives way comes to nothing.
os.environ["EDGEFLOCK_CLIENT__LOW_PRIORITY"] = "false"

import msgpack
import pytest
from hypothesis import HealthCheck, settings

from edgeflock.shared.files import write_atomically

if TYPE_CHECKING:
    from tests.postgres import Cluster

# Hundreds of processes import the package, and each process here the tests: compiled once, not by each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The same examples everywhere: a change is judged by what it changes. More of them: EDGEFLOCK_EXAMPLES=100.
settings.register_profile(
    "edgeflock",
    deadline=None,
    derandomize=True,
    max_examples=int(os.environ.get("EDGEFLOCK_EXAMPLES", "40")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("edgeflock")


@pytest.fixture(scope="session", autouse=True)
def _cache_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What clients keep there is none of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _processes_are_forked(_cache_of_its_own: None) -> None:
    """The process that others are forked from begins before a test may choose what it imports, or where."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        import tests.library.command_line  # noqa: F401  says what it imports

        forkserver.ensure_running()


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
    """Use several processes, unless -n or --dist says otherwise.

    A file or a test alone runs in this process: it starts at once, and a debugger can stop it. This is not
    among the `addopts`, so that `-p no:xdist` and an environment without pytest-xdist still work.
    """
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    alone = all(Path(argument.partition("::")[0]).is_file() for argument in config.args)
    if config.option.numprocesses is None and config.option.dist == "no" and not alone:
        config.option.numprocesses, config.option.dist = "auto", "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many processes again as there are cores: a third of their time, tests wait for others."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + (cores + 1) // 2


FIRST = "test_notebooks", "test_readme", "test_sensors_document", "test_no_telemetry", "test_page_returns"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow-part", metavar="K/N", help="of the tests marked slow, run only part K of N")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other parts of the slow tests. The longest come first: last, all would wait for them."""
    if part := config.getoption("slow_part"):
        k, n = map(int, part.split("/"))
        slow = [item for item in items if item.get_closest_marker("slow")]
        left_out = {item for item in slow if zlib.crc32(item.nodeid.encode()) % n != k % n}
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not any(name in item.nodeid for name in FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No search for garbage while modules are imported, and none in these later; a full one is rarer."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(700, 10, 100)
        gc.enable()


@pytest.fixture(autouse=True)
def _exports_are_quick(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Servers here export a model of the tests in a thread, and one of the zoo once a session."""
    from edgeflock.server.training_graph.served import GraphStore

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers of this session
    export = GraphStore._export_in_process

    async def export_quickly(store: GraphStore) -> dict[str, Any]:
        model = store._model
        if not model.module.startswith(("edgeflock.client.zoo:", "tests.")):
            return await export(store)
        key = hashlib.sha256(model.model_dump_json().encode()).hexdigest()
        file = folder / f"{key}.graphs"
        if file.exists():
            kept: dict[str, Any] = msgpack.unpackb(file.read_bytes())
            return kept
        import tests.exporting  # noqa: F401

        graphs = await store._export_in_thread()
        if model.module.startswith("edgeflock") and model.data in ("", "digits:"):
            write_atomically(file, msgpack.packb(graphs))
        return graphs

    monkeypatch.setattr(GraphStore, "_export_in_process", export_quickly)


@pytest.fixture
def exports_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of this process exports in a thread: a process for it imports torch and its exporter first."""
    import tests.exporting  # noqa: F401
    from edgeflock.server.training_graph.served import GraphStore

    monkeypatch.setattr(GraphStore, "_export_in_process", GraphStore._export_in_thread)


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Cluster]":
    """A PostgreSQL for all tests of this process, each of which takes a schema of its own."""
    from tests.postgres import cluster

    with cluster() as made:
        yield made
