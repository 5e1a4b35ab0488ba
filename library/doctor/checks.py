"""All checks of a device, and all of a server, on this machine."""

import asyncio
import os
import platform
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

from edgeflock.client.data.open import directory, is_stored
from edgeflock.client.identity import default_path, load_identity
from edgeflock.client.machine import ROOT, DeviceHealth, memory_of
from edgeflock.doctor import files, machine
from edgeflock.doctor.connection import check_answer, query_server
from edgeflock.doctor.finding import CheckResult, bad, ok, warn
from edgeflock.doctor.machine import check_package
from edgeflock.shared.data import datasets
from edgeflock.shared.environments import is_environment, open_environment
from edgeflock.shared.errors import ConfigError, JournalDamaged
from edgeflock.shared.extras import install_command
from edgeflock.shared.settings.client import ClientSettings
from edgeflock.shared.settings.config import Config

DEVICE_DISK, SERVER_DISK = 1 << 30, 10 << 30
"""Recommended free bytes, because a journal grows."""


def check_device(settings: ClientSettings) -> Iterator[CheckResult]:
    """Check a machine that will train."""
    yield from _check_machine(directory(settings), DEVICE_DISK)
    only_torch = settings.backend == "auto" and find_spec("torch") and not find_spec("onnxruntime")
    if settings.backend == "torch" or only_torch:
        yield check_package("torch", install_command("torch"))
    else:
        yield check_package("onnxruntime", install_command("onnx"))
    yield from _check_identity(settings)
    yield _check_data(settings)


def check_server(config: Config) -> Iterator[CheckResult]:
    """Check a machine that will host the run of `config`."""
    place = Path(config.server.directory)
    yield from _check_machine(place, SERVER_DISK)
    extra = "arrays" if config.model.arrays else "server"
    for module in ("numba", *(() if config.model.arrays else ("torch", "onnx"))):
        yield check_package(module, install_command(extra))
    if (soft := _open_files()) is not None:
        yield machine.open_files(soft, config.limits.devices)
    yield files.directory(place)
    certificate = place / "certificate.pem"
    if config.server.certificate or certificate.exists():
        yield files.certificate(Path(config.server.certificate) if config.server.certificate else certificate)
    yield _check_journal(place)
    yield from _check_project(config)


def _check_machine(place: Path, recommended: int) -> Iterator[CheckResult]:
    bits = 8 * struct.calcsize("P")
    yield machine.python(sys.version_info[:3], bits, platform.libc_ver())
    yield machine.clock(time.time(), Path(__file__).stat().st_mtime, ROOT)
    existing = next(path for path in (place.absolute(), *place.absolute().parents) if path.exists())
    yield machine.disk(place, shutil.disk_usage(existing).free, os.access(existing, os.W_OK), recommended)
    yield machine.memory(memory_of(), ROOT)
    facts = DeviceHealth()()
    for found in (machine.power(facts.get("undervoltage")), machine.heat(facts.get("temperature"))):
        if found is not None:
            yield found


def _open_files() -> int | None:
    try:
        import resource
    except ImportError:  # on systems without such a limit
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return -1 if soft == resource.RLIM_INFINITY else soft


def _check_identity(settings: ClientSettings) -> Iterator[CheckResult]:
    place = Path(settings.identity) if settings.identity else default_path()
    identity = None
    if place.exists() or settings.identity:
        yield files.secret(place)
        try:
            identity = load_identity(place)
        except ConfigError as error:
            yield bad("identity", str(error), "mend the file, or remove it and join anew")
            return
    # Only one of several servers with standbys answers.
    servers = (identity.server if identity else settings.server).split(",")
    for server in servers:
        answer = asyncio.run(query_server(server.strip(), identity, insecure=settings.insecure))
        if answer.status == 200:
            break
    yield check_answer(answer)
    if (found := machine.skew(time.time(), answer.date)) is not None:
        yield found


def _check_data(settings: ClientSettings) -> CheckResult:
    """Check the training data. The server's Welcome tells whether they fit the run's model."""
    if settings.flower_app:
        return ok("data", "a Flower app reads its own")
    uris = [entry.partition("=")[2] for entry in settings.shards] or [settings.data]
    remedy = "name this device's data in client.data, or --set client.data=URI (docs/data.md)"
    if "data" not in settings.model_fields_set and not settings.shards:
        return warn("data", "client.data is not set: it would train on digits", remedy)
    samples = 0
    for uri in uris:
        if is_environment(uri):
            return _check_environment(uri)
        try:
            if not is_stored(uri):
                from edgeflock.client.data.sources import open_source  # needs the stream's package

                open_source(uri)
                return ok(
                    "data", f"{uri.partition(':')[0]}: is a stream, which was not opened; its URI is right"
                )
            with redirect_stdout(sys.stderr):  # the user's module may print
                samples += len(datasets.read(uri, "train"))
        except ConfigError as error:
            return bad("data", str(error), remedy)
    return ok("data", f"{samples:,} samples")


def _check_environment(uri: str) -> CheckResult:
    """Check the environment. The server's Welcome tells whether the run's policy fits."""
    try:
        found = open_environment(uri)
    except ConfigError as error:
        remedy = "name an environment in client.data (docs/reinforcement-learning.md)"
        return bad("data", str(error), remedy)
    kind = "actions to choose from" if found.discrete else "numbers to give"
    return ok("data", f"{uri}: observations {list(found.shape)}, {found.actions} {kind}")


def _check_journal(place: Path) -> CheckResult:
    if not (place / "journal.sqlite").exists():
        others = sorted(Path().glob(f"*/{place.name}/journal.sqlite"))
        if others and not place.is_absolute():
            folder = others[0].parent.parent
            return warn(
                "journal",
                f"{place} holds no run here, and {others[0].parent} does",
                f"a server's paths count from where it starts: cd {folder} first, or --set "
                f"server.directory={others[0].parent}",
            )
        return ok("journal", f"{place} holds no run yet")
    from edgeflock.server.ledger import verify

    problem = f"edgeflock journal verify {place} says what is whole, and what to do"
    try:
        found = verify(place / "journal.sqlite")
    except (ConfigError, JournalDamaged) as error:
        return bad("journal", str(error), problem)
    if found.damage:
        return bad("journal", f"run {found.run}: {found.damage[0]}", problem)
    return ok("journal", f"run {found.run} is whole, version 0 to {found.version}")


def _check_project(config: Config) -> Iterator[CheckResult]:
    """Check data against model, a step and the export, like `edgeflock check`."""
    if config.model.arrays:
        yield ok("model", "arrays, which the devices' apps train")
        return
    if not config.model.data:
        yield warn("model", "model.data = '': nothing is evaluated", "name held-out data in model.data")
        return
    try:
        from edgeflock.projects.checking import check_project

        with redirect_stdout(sys.stderr):  # the user's module may print
            found = check_project(config)
    except ImportError as error:
        yield bad("model", f"{error.name} is not installed", install_command("server"))
        return
    except ConfigError as error:
        yield bad("model", str(error), "edgeflock check CONFIG.toml tries it again")
        return
    yield ok("model", f"{found.model} fits {found.held_out:,} held-out samples; {found.trial}")
    for line in found.advice():
        said, _, remedy = line.partition(": ")
        yield warn("model", said, remedy)
