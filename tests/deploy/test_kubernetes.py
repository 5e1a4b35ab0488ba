"""The manifests, where there is no cluster: against the API's schemas, and what they must keep to."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgeflock.shared.settings.config import parse
from tests.documents.test_parsed import parsed

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
    (gateways,) = of_kind("Deployment")
    others = gateways["spec"]["template"]["metadata"]["labels"]
    selected = [one["spec"]["selector"] for one in of_kind("Service")]
    assert others in selected
    pods = {one.get("statefulset.kubernetes.io/pod-name") for one in selected if one != others}
    assert pods == {None, *names}, "an address for each server, and the set's own"
    assert set_["spec"]["serviceName"] in {one["metadata"]["name"] for one in of_kind("Service")}
    budgets = [one["spec"]["selector"]["matchLabels"] for one in of_kind("PodDisruptionBudget")]
    assert sorted(budgets, key=str) == sorted([labels, others], key=str)
    (scaler,) = of_kind("HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == gateways["metadata"]["name"]
    assert "replicas" not in gateways["spec"], "the autoscaler's to say"


def test_gateways_look_for_all_servers_and_are_nobody_s_root() -> None:
    (set_,), (gateways,) = of_kind("StatefulSet"), of_kind("Deployment")
    spec = gateways["spec"]["template"]["spec"]
    (gateway,) = spec["containers"]
    server = set_["spec"]["template"]["spec"]["containers"][0]
    assert gateway["image"] == server["image"]
    assert spec["securityContext"] == set_["spec"]["template"]["spec"]["securityContext"]
    assert gateway["securityContext"] == server["securityContext"]
    name, service = set_["metadata"]["name"], set_["spec"]["serviceName"]
    servers = [f"https://{name}-{number}.{service}:8470" for number in range(set_["spec"]["replicas"])]
    assert f"--upstream={','.join(servers)}" in gateway["args"]
    mounted = {one["mountPath"] for one in gateway["volumeMounts"]}
    files = [one.split("=")[1] for one in gateway["args"] if "=/" in one]
    assert {str(Path(file).parent) for file in files} <= mounted
    parsed(["gateway", *gateway["args"]])


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
