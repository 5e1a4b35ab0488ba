"""What a release is made of: a wheel, a sdist and the list of what they need, built twice to the same bytes.

    python .ci/release.py DIRECTORY [--tag v1.2.3] [--commit HEAD]

From a commit, not from the working tree: nothing that is not in it gets in. The list is CycloneDX, of the
versions installed beside this Python, so run it in the environment that passed the checks.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

EXTRAS = frozenset({"all"})
"""Whose packages are listed."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, help="where the files go")
    parser.add_argument("--tag", default="", help="must be the version's")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--no-isolation", action="store_true", help="build with what is installed")
    given = parser.parse_args()
    epoch = int(_git("log", "-1", "--format=%ct", given.commit))
    version = tomllib.loads(_git("show", f"{given.commit}:pyproject.toml"))["project"]["version"]
    if given.tag and given.tag != f"v{version}":
        sys.exit(f"the tag is {given.tag}, and pyproject.toml says {version}")
    once, again = (build(given.commit, epoch, isolated=not given.no_isolation) for _ in range(2))
    different = [name for name in sorted(once.keys() | again.keys()) if once.get(name) != again.get(name)]
    if different:
        sys.exit(f"built twice, and not the same bytes: {', '.join(different)}")
    files = {**once, f"edgeflock-{version}.cdx.json": bill(version).encode()}
    given.directory.mkdir(parents=True, exist_ok=True)
    for name, octets in files.items():
        (given.directory / name).write_bytes(octets)
    sums = "".join(
        f"{hashlib.sha256(octets).hexdigest()}  {name}\n" for name, octets in sorted(files.items())
    )
    (given.directory / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def build(commit: str, epoch: int, *, isolated: bool = True) -> dict[str, bytes]:
    """Name -> bytes of sdist and wheel."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder, "source"), Path(folder, "built")
        source.mkdir()
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "-c", "tar.umask=022", "archive", commit],
            capture_output=True,
            check=True,
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(source, filter="data")
        environ = {
            **os.environ,
            "SOURCE_DATE_EPOCH": str(epoch),
            # The builder's version is in what it builds.
            "PIP_CONSTRAINT": str(source / "constraints.txt"),
        }
        command = [sys.executable, "-m", "build", "--outdir", str(built), str(source)]
        done = subprocess.run(
            [*command, *([] if isolated else ["--no-isolation"])],
            env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=0o022,
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.stdout)
        found = {path.name: path.read_bytes() for path in built.iterdir()}
    return {
        name: sealed(octets, epoch) if name.endswith(".tar.gz") else octets for name, octets in found.items()
    }


def sealed(sdist: bytes, epoch: int) -> bytes:
    """The same files, in order, of nobody, of one time: setuptools writes them as it finds them."""
    tar, packed = io.BytesIO(), io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as source,
        tarfile.open(fileobj=tar, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda one: one.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime, member.pax_headers = epoch, {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            target.addfile(member, source.extractfile(member) if member.isreg() else None)
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as file:
        file.write(tar.getvalue())
    return packed.getvalue()


def bill(version: str) -> str:
    """The software bill of materials, in CycloneDX 1.6: each package, its version, and whom it needs."""
    needs = needed("edgeflock", EXTRAS)
    components = [_component(name) for name in sorted(needs) if name != "edgeflock"]
    refs = {name: _purl(name, version if name == "edgeflock" else metadata.version(name)) for name in needs}
    return json.dumps(
        {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "application",
                    "bom-ref": refs["edgeflock"],
                    "name": "edgeflock",
                    "version": version,
                    "purl": refs["edgeflock"],
                    "licenses": [{"expression": "Apache-2.0 AND CC-BY-4.0"}],
                }
            },
            "components": components,
            "dependencies": [
                {"ref": refs[name], "dependsOn": sorted(refs[other] for other in needs[name])}
                for name in sorted(needs)
            ],
        },
        indent=1,
    )


def needed(name: str, extras: frozenset[str]) -> dict[str, set[str]]:
    """Return package -> the packages that it needs on this machine, from `name` with its extras on.

    Raises PackageNotFoundError if one is not installed.
    """
    found: dict[str, set[str]] = {}
    open_ones, seen = [(canonical(name), extras)], set()
    while open_ones:
        one, asked = open_ones.pop()
        for extra in asked or {""}:
            if (one, extra) in seen:
                continue
            seen.add((one, extra))
            direct = found.setdefault(one, set())
            for text in metadata.requires(one) or ():
                wanted = Requirement(text)
                if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                    other = canonical(wanted.name)
                    direct |= {other} - {one}
                    open_ones.append((other, frozenset(wanted.extras)))
    return found


def canonical(name: str) -> str:
    """As the package index has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _component(name: str) -> Mapping[str, object]:
    version = metadata.version(name)
    told = metadata.metadata(name)
    licence = told.get("License-Expression") or ""
    return {
        "type": "library",
        "bom-ref": _purl(name, version),
        "name": name,
        "version": version,
        "purl": _purl(name, version),
        **({"licenses": [{"expression": licence}]} if licence else {}),
    }


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version.partition('+')[0]}"


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
