"""A device installs wheels and compiles nothing: all that 'edgeflock[onnx]' needs has them for 64-bit Arm.

Asks a package index, for minutes if that is slow: only with `-m network`. Skipped where none answers.
"""

import json
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = [pytest.mark.network, pytest.mark.timeout(1800)]

PLATFORMS = ("manylinux_2_28_aarch64", "manylinux2014_aarch64")
"""Of a Raspberry Pi or a Jetson with glibc 2.28 or newer."""

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"


def resolve(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What pip would install, as its JSON report; nothing is downloaded but what it must look into."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--dry-run", "--ignore-installed", "--only-binary=:all:", "--report", "-"]
    return subprocess.run([*command, "--target", str(directory), *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def needs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What 'edgeflock[onnx]' asks for."""
    listed = [Requirement(line) for line in requires("edgeflock") or []]
    chosen = [one for one in listed if one.marker is None or one.marker.evaluate({"extra": "onnx"})]
    assert {"numpy", "onnxruntime"} <= {one.name for one in chosen}
    found = resolve(tmp_path_factory.mktemp("any"), "--no-deps", "idna")
    if found.returncode:
        pytest.skip(f"no package index answers: {found.stderr.strip().splitlines()[-1:]}")
    return [f"{one.name}{one.specifier}" for one in chosen]


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_every_dependency_of_the_onnx_client_has_a_wheel(
    version: str, needs: list[str], tmp_path: Path
) -> None:
    target = ["--implementation", "cp", "--python-version", version]
    for platform in PLATFORMS:
        target += ["--platform", platform]
    found = resolve(tmp_path, *target, "-c", str(CONSTRAINTS), *needs)
    assert found.returncode == 0, f"CPython {version} on 64-bit Arm lacks a wheel:\n{found.stderr}"
    files = [one["download_info"]["url"].rpartition("/")[2] for one in json.loads(found.stdout)["install"]]
    names = {file.partition("-")[0].lower() for file in files}
    assert {"numpy", "onnxruntime", "aiohttp", "pydantic_core", "msgpack"} <= names
    assert not names & {"torch", "onnx", "numba", "sympy"}
    for file in files:
        tag = file.removesuffix(".whl").rpartition("-")[2]
        assert tag == "any" or "aarch64" in tag, file
