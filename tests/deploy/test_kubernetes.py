"""The manifests, where there is no cluster: against the API's schemas, and what they must keep to."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgeflock.shared.settings.config import parse

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"

VERSIONS = ("1.31", "1.34")
"""Of Kubernetes: an older one, and one of today."""


def documents() -> list[dict[str, Any]]:
    files = sorted(MANIFESTS.glob("*.yaml"))
    assert files
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_s_schemas_take_them(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for document in documents():
        validate.validate(document, version, strict=True)
    broken = of_kind("StatefulSet")[0]
    broken["spec"]["replicas"] = "two"
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, version, strict=True)


def test_who_is_selected_is_there() -> None:
    (set_,) = of_kind("StatefulSet")
    labels = set_["spec"]["template"]["metadata"]["labels"]
    names = {f"{set_['metadata']['name']}-{number}" for number in range(set_["spec"]["replicas"])}
    assert set_["spec"]["selector"]["matchLabels"].items() <= labels.items()
    selected = [one["spec"]["selector"] for one in of_kind("Service")]
    pods = {one.get("statefulset.kubernetes.io/pod-name") for one in selected}
    assert pods == {None, *names}, "an address for each server, and the set's own"
    assert set_["spec"]["serviceName"] in {one["metadata"]["name"] for one in of_kind("Service")}
    (budget,) = of_kind("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_server_is_nobody_s_root_and_knows_its_settings() -> None:
    (set_,), (settings,) = of_kind("StatefulSet"), of_kind("ConfigMap")
    spec = set_["spec"]["template"]["spec"]
    (server,) = spec["containers"]
    assert spec["securityContext"]["runAsUser"] == 10001, "that of deploy/Dockerfile"
    assert server["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {one["mountPath"]: one["name"] for one in server["volumeMounts"]}
    assert mounts.keys() == {"/var/lib/edgeflock", "/etc/edgeflock", "/tmp"}
    assert not of_kind("Secret"), "who installs it makes the secret"
    environment = {one["name"]: "postgresql://u@db/edgeflock" for one in server["env"]}
    for name, text in settings["data"].items():
        assert f"/etc/edgeflock/{name}" in server["args"]
        tomllib.loads(text)
        assert parse(text, name, environment).journal.url == "postgresql://u@db/edgeflock"
