"""What stands under <!-- run --> and <!-- long -->, typed line by line, a page in a folder of its own.

In it are the files that the page shows, tables, and a run of forty updates of a device, pi-7, whose
server is started when a page first needs one. What a reader puts in is put in: the address, the token, names
of files of theirs. `edgeflock` runs in forked processes that have imported it, all else in a shell.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from edgeflock.server.identity import own_certificate
from edgeflock.shared.data.datasets import load
from tests.digits import of_28
from tests.documents.blocks import PAGES, ROOT, blocks, files
from tests.library.command_line import edgeflock, running
from tests.ports import lasting

FIRST, LAST = 40, 80
"""Updates of the run that a page finds, and that it ends with."""

ABSOLUTE = re.compile(r"(?<=[ \"'>:=])/(?=(?:backups|etc|srv)/)")
"""What a page has at the root of a machine lies in the folder."""

BEFORE = {
    # "A device that was set up anew under its old name: revoke the old one first."
    "docs/how-to/join-and-revoke.md": "edgeflock device revoke pi-7",
    # Nobody has quarantined it yet.
    "docs/operations.md": "edgeflock device list",
}
"""Typed first."""

FRESH = {
    "docs/onnx.md": "edgeflock server --set model.module=edgeflock.client.zoo:DigitsCNN",
    "docs/reinforcement-learning.md": "",
    "docs/streams.md": "",
}
"""Pages whose servers begin a run of their own, with devices that have not joined -> what is typed first."""

RETURNS = {"edgeflock doctor": (0, 1)}
"""Exit codes that are an answer: this machine may lack room, or a clock. Of all else 0 alone."""


def table(path: Path, rows: int) -> None:
    random = np.random.default_rng(rows)
    lines = ["pressure,state,heat"]
    for pressure, heat in zip(random.normal(1000, 50, rows), random.normal(20, 5, rows), strict=True):
        state = "runs" if (pressure - 1000) / 50 + (heat - 20) / 5 > 0 else "idle"
        lines.append(f"{pressure:.2f},{state},{heat:.2f}")
    path.write_text("\n".join(lines) + "\n")


class Machine:
    """A folder in which somebody types."""

    def __init__(self, folder: Path, opened: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.folder, self._opened, self.patch = folder, opened, patch
        # Where pi-7 has joined, also in a copy of the folder.
        if not (folder / "port").exists():
            (folder / "port").write_text(str(lasting()))
        self.port = int((folder / "port").read_text())
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            patch.setenv(name, str(folder))
        patch.setenv("EDGEFLOCK_SERVER__PORT", str(self.port))
        # The device has torch and the project's code, so nothing is exported.
        patch.setenv("EDGEFLOCK_CLIENT__MODEL", "model:Model")
        self.said = folder / "server.log"
        self.server = self._anew = False

    def put_in(self, line: str) -> str:
        """What a reader puts in the place of examples."""
        text = ABSOLUTE.sub(f"{self.folder}/", line)
        text = re.sub(r"https?://(?:192\.0\.2\.1|127\.0\.0\.1):8470", self.url(), text)
        if " TOKEN" in text:
            text = text.replace(" TOKEN", f" {self.token()}")
        if "token revoke ID" in text:
            listed = self.run("edgeflock token list").splitlines()
            text = text.replace(" ID", f" {next(one.split()[0] for one in listed if 'device' in one)}")
        if "rollback 4640" in text:
            text = text.replace("4640", str(FIRST // 2))
        if text.startswith("edgeflock fleet"):  # minutes, in full
            text += " --set end.updates=60 --set fleet.seeds=0"
        return text

    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def token(self) -> str:
        """Of a new device, as the server's machine makes it."""
        printed = self.run("edgeflock token create")
        return printed.split()[-1]

    def serve(self, line: str) -> None:
        """A server goes on until the page's end; a second one takes the place of the first."""
        self._opened.close()
        if self._anew:
            shutil.rmtree(self.folder / "edgeflock-run", ignore_errors=True)
        words = self.expanded(line.removeprefix("edgeflock "))
        before = self.said.read_text().count("To watch and act") if self.said.exists() else 0
        process = self._opened.enter_context(running(*words, cwd=self.folder, said=self.said))
        while self.said.read_text().count("To watch and act") <= before if self.said.exists() else True:
            assert process.exitcode is None, self.said.read_text()
            time.sleep(0.05)
        self.server = True

    def expanded(self, words: str) -> list[str]:
        """As a shell hands them over."""
        done = subprocess.run(
            ["sh", "-ec", f"printf '%s\\0' {words}"],
            cwd=self.folder,
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout.split("\0")[:-1]

    def run(self, line: str) -> str:
        """Standard output of a line that ends by itself."""
        if not line.startswith("edgeflock "):
            done = subprocess.run(["sh", "-ec", line], cwd=self.folder, capture_output=True, text=True)
        else:
            command, _, into = line.partition(" >")
            done = edgeflock(*self.expanded(command.removeprefix("edgeflock ")), cwd=self.folder)
            if into:
                (target,) = self.expanded(into)
                (self.folder / target).write_text(done.stdout)
        allowed = next((codes for start, codes in RETURNS.items() if line.startswith(start)), (0,))
        assert done.returncode in allowed, f"{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{line}\n{done.stderr}"
        return done.stdout

    def begin_anew(self, first: str) -> None:
        """Nobody has joined, and every server begins a run."""
        (self.folder / "edgeflock" / "identity.json").unlink()
        self.patch.delenv("EDGEFLOCK_CLIENT__MODEL")
        self.patch.setenv("EDGEFLOCK_CLIENT__SERVER", self.url())
        self._anew = True
        if first:
            self.serve(first)

    def type(self, lines: list[str]) -> None:
        """Clients that stand one below the other train beside each other."""
        training = []
        for line in lines:
            if line.startswith("edgeflock server"):
                self.serve(self.put_in(line))
                continue
            if not self.server and re.match(r"edgeflock (?:client|rollback|status)\b|curl", line):
                self.serve("edgeflock server edgeflock.toml")
            if line.startswith("edgeflock client join"):  # on a device that has not
                (self.folder / "edgeflock" / "identity.json").unlink(missing_ok=True)
            if line.startswith("edgeflock client --"):
                training.append(self.put_in(line))
            else:
                self.run(self.put_in(line))
        with ThreadPoolExecutor(len(training) or 1) as threads:
            list(threads.map(self.run, training))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as `edgeflock init` makes it, and its run."""
    folder = tmp_path_factory.mktemp("trained")
    for name, rows in (("held_out", 60), ("train", 300), ("captures", 300), ("mine", 300)):
        table(folder / f"{name}.csv", rows)
    of_28(folder / "mnist.npz")
    digits = load("digits:", "train")
    np.savez(folder / "captures.npz", x_train=digits.x, y_train=digits.y)
    for name in ("etc/edgeflock", "etc/prometheus", "backups"):
        (folder / name).mkdir(parents=True)
    with machine(folder) as typed:
        typed.run("edgeflock init . --data 'csv:held_out.csv?label=state'")
        typed.patch.setenv("EDGEFLOCK_END__UPDATES", str(FIRST))
        typed.serve("edgeflock server edgeflock.toml")
        typed.run(f"edgeflock client join {typed.url()} {typed.token()} --name pi-7")
        typed.run("edgeflock client --data 'csv:train.csv?label=state'")
    identity = folder / "edgeflock" / "identity.json"
    server = own_certificate(folder / "edgeflock-run", "127.0.0.1")
    shutil.copy(server.certificate, folder / "server.pem")
    shutil.copy(server.key, folder / "server-key.pem")
    for name in ("certificate.pem", "certificate-key.pem"):
        (folder / "edgeflock-run" / name).unlink()
    settings = f'[client]\nidentity = {str(identity)!r}\ndata = "csv:{folder}/train.csv?label=state"\n'
    (folder / "etc/edgeflock/client.toml").write_text(settings)
    (folder / "etc/edgeflock/server.toml").write_text((folder / "edgeflock.toml").read_text())
    return folder


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as opened:
        yield Machine(folder, opened, patch)


def typed(page: Path, mark: str, trained: Path, folder: Path) -> None:
    shutil.copytree(trained, folder)
    shutil.copy(trained / "held_out.csv", folder.parent)  # beside a project, as own-model.md has it
    for name, text in files(page).items():
        (folder / name).write_text(text)
    with machine(folder) as person:
        person.patch.setenv("EDGEFLOCK_END__UPDATES", str(LAST))
        if before := BEFORE.get(named(page)):
            person.run(before)
        if (first := FRESH.get(named(page))) is not None:
            person.begin_anew(first)
        for block in blocks(page):
            if block.mark == mark:
                try:
                    person.type(list(block.lines()))
                except (AssertionError, subprocess.CalledProcessError) as error:
                    pytest.fail(f"{block.place}: {error}")


def pages(mark: str) -> list[Path]:
    return [page for page in PAGES if any(block.mark == mark for block in blocks(page))]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages("run"), ids=named)
def test_what_a_page_says_is_typed(page: Path, trained: Path, tmp_path: Path) -> None:
    typed(page, "run", trained, tmp_path / "here")


@pytest.mark.long
@pytest.mark.parametrize("page", pages("long"), ids=named)
def test_what_takes_longer_is_typed(page: Path, trained: Path, tmp_path: Path) -> None:
    typed(page, "long", trained, tmp_path / "here")
