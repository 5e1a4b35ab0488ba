"""Who takes part in a fleet."""

from tests.devices.emulation.fleets import MIXED, fleet_of, run


def test_devices_of_a_class_are_spread_over_the_shares() -> None:
    """Which device is of which class is drawn: another seed deals the classes otherwise."""
    quick = []
    for seed in (0, 1, 2):
        file = fleet_of(
            MIXED, "fleet.devices=12", "devices.slow.step_ms=1e6", "devices.slow.timing=lognormal"
        )
        ran = run(file, seed=seed)
        assert {kind: tally.devices for kind, tally in ran.result.classes.items()} == {"quick": 8, "slow": 4}
        quick.append({push.device for push, _ in ran.server.accepted})
    assert [len(numbers) for numbers in quick] == [8, 8, 8]
    assert quick[0] != quick[1] != quick[2]
