"""Metrics of several runs as one text that Prometheus reads."""

from prometheus_client.parser import text_string_to_metric_families

from edgeflock.server.supervision.metrics import merge_metrics, state_metrics

ONE = """\
# HELP edgeflock_run_info The run.
# TYPE edgeflock_run_info gauge
edgeflock_run_info{model="zoo:A",run="5f3c"} 1.0
# HELP edgeflock_updates_total Updates.
# TYPE edgeflock_updates_total counter
edgeflock_updates_total 3.0
# HELP edgeflock_device_loss Loss, in {nats} a sample.
# TYPE edgeflock_device_loss gauge
edgeflock_device_loss{device="a run=\\"b\\" c"} 0.5
"""


def test_each_sample_has_its_run_and_families_stay_together() -> None:
    text = state_metrics({"a": True, "b": False}) + merge_metrics({"a": ONE, "b": ONE, "c": ""})
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {sample.labels["run"]: sample.value for sample in families["edgeflock_run_up"].samples} == {
        "a": 1,
        "b": 0,
    }
    updates = families["edgeflock_updates"]
    assert [(sample.labels, sample.value) for sample in updates.samples] == [
        ({"run": "a"}, 3),
        ({"run": "b"}, 3),
    ]
    info = families["edgeflock_run_info"].samples[1]
    assert info.labels == {"run": "b", "exported_run": "5f3c", "model": "zoo:A"}
    assert families["edgeflock_device_loss"].samples[0].labels == {"run": "a", "device": 'a run="b" c'}
    assert text.count("# TYPE edgeflock_updates_total") == 1
