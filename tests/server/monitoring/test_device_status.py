"""What a device is like, of what it tells and of what the server has seen of it."""

from edgeflock.server.monitoring.device_status import DeviceStatuses, RecentGrowth
from edgeflock.server.roster import Device
from edgeflock.shared.protocol.messages import Facts


def test_a_count_of_late_forgets_and_begins_anew_with_its_process() -> None:
    drops = RecentGrowth(120.0)
    for time, count in ((0.0, 5), (60.0, 9), (100.0, 9), (130.0, 20)):
        drops.add(time, count)
    assert drops.growth(130.0) == 15, "of the first nobody knows how old it is"
    assert drops.growth(181.0) == 11
    assert drops.growth(260.0) == 0
    drops.add(270.0, 2)
    assert (drops.growth(270.0), drops.count) == (0, 2)


def test_what_a_full_disk_did_not_take_is_no_buffer_without_room() -> None:
    device, statuses = Device("pi", 1), DeviceStatuses(lambda number: None)
    reported: list[Facts] = [
        {"drops": 3, "came": 9},
        {"drops": 60, "unwritten": 50, "came": 99, "quarantined": 0},
    ]
    for second, facts in enumerate(reported):
        device.statistics.telemetry = facts
        status = statuses.status(device, 10.0 + second, second)
    assert (status.recent_drops, status.unwritten_samples, status.total_drops, status.samples) == (
        7,
        50,
        60,
        90,
    )


def test_what_is_no_number_is_told_of_nobody() -> None:
    device, statuses = Device("pi", 1), DeviceStatuses(lambda number: None)
    device.statistics.telemetry = {
        "drops": "many", "step": "slow", "temperature": "warm", "clock": 1.5, "held_out": "all",
    }  # fmt: skip
    status = statuses.status(device, 10.0, 10.0)
    assert (status.recent_drops, status.step, status.temperature) == (0, None, None)
    assert (status.clock_error, status.held_out_rows) == (None, 0)


def test_what_devices_say_of_their_own_evaluations() -> None:
    device, statuses = Device("pi", 1), DeviceStatuses(lambda number: None)
    reported: list[Facts] = [
        {"cpu": 3},
        {"eval.eval_acc": 0.25, "eval.num-examples": 10},
        {"cpu": 4, "eval.eval_acc": 0.25, "eval.num-examples": 10},
        {"eval.eval_acc": 0.5, "eval.num-examples": 10},
        {"eval.eval_acc": 7, "eval.num-examples": 10},
        {"eval.eval_acc": 0.5, "eval.num-examples": 9},
        {"eval.accuracy": 1, "eval.loss": 0.75, "eval.num-examples": 1e9},
    ]
    seen = []
    for facts in reported:
        device.statistics.telemetry = facts
        status = statuses.status(device, 10.0, 10.0)
        seen.append((status.accuracy, status.evaluations))
    assert seen == [(None, 0), (0.25, 1), (0.25, 1), (0.5, 2), (None, 3), (None, 4), (1.0, 5)]
