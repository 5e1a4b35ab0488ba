"""What a release is made of, without building one: `.ci/release.py` builds twice and compares, each time."""

import importlib.util
import io
import json
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packed(names: list[str], mtime: int, uid: int, mode: int) -> bytes:
    octets = io.BytesIO()
    with tarfile.open(fileobj=octets, mode="w:gz") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uid, info.mode, info.uname = len(name), mtime, uid, mode, f"user{uid}"
            archive.addfile(info, io.BytesIO(name.encode()))
    return octets.getvalue()


def test_an_archive_is_the_same_whoever_packed_it(release: ModuleType) -> None:
    one = release.sealed(packed(["p/b", "p/a"], 1, 1000, 0o664), 1_700_000_000)
    other = release.sealed(packed(["p/a", "p/b"], 2, 0, 0o644), 1_700_000_000)
    assert one == other
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        assert [(m.name, m.mode, m.mtime, m.uid) for m in archive] == [
            ("p/a", 0o644, 1_700_000_000, 0),
            ("p/b", 0o644, 1_700_000_000, 0),
        ]
    assert one != release.sealed(packed(["p/a"], 1, 0, 0o644), 1_700_000_000)


@pytest.mark.slow
def test_the_bill_names_what_is_needed(release: ModuleType) -> None:
    said = json.loads(release.bill("1.2.3"))
    refs = {one["bom-ref"] for one in said["components"]}
    names = {one["name"] for one in said["components"]}
    assert {"numpy", "aiohttp", "torch", "onnxruntime", "numba"} <= names
    assert "pytest" not in names
    own = said["metadata"]["component"]
    assert own["purl"] == "pkg:pypi/edgeflock@1.2.3"
    edges = {one["ref"]: one["dependsOn"] for one in said["dependencies"]}
    assert edges.keys() == refs | {own["bom-ref"]}
    assert {other for depends in edges.values() for other in depends} <= refs
    assert release.bill("1.2.3") == release.bill("1.2.3")


def test_the_workflow_of_a_tag_runs_the_checks_first() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    (job,) = workflow["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert runs[0] == "EDGEFLOCK_ALL=1 bash .ci/run"
    assert ".ci/release.py" in runs[1]
    assert "--tag" in runs[1]


def test_what_install_sh_needs_is_in_the_wheel() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "install/*" in tables["package-data"]["edgeflock.devices"]
