"""What a fleet is made of: its data, and what a step on them costs."""

from pathlib import Path

from edgeflock.devices.emulation.fleet import prepare
from edgeflock.shared.data import datasets
from tests.devices.emulation.fleets import MIXED, fleet_of


def test_the_data_are_dealt_out() -> None:
    prepared = prepare(fleet_of(MIXED, "fleet.devices=7", "fleet.samples=100"))
    assert [len(share) for share in prepared.shares] == [15, 15, 14, 14, 14, 14, 14]
    assert prepared.test.x.tobytes() == datasets.load("digits:", "test").x.tobytes()


def test_a_table_is_dealt_out_in_the_units_of_what_is_held_out(tmp_path: Path) -> None:
    rows = "".join(f"{','.join(['1', '3'] * 32)},{label}\n" for label in ("b", "a", "b"))
    header = ",".join(f"c{column}" for column in range(64))
    (tmp_path / "train.csv").write_text(f"{header},y\n{rows}")
    held_out = f"{','.join(['0'] * 64)},a\n{','.join(['2'] * 64)},b\n"
    (tmp_path / "held_out.csv").write_text(f"{header},y\n{held_out}")
    uris = (
        f"{key}=csv:{tmp_path}/{name}.csv?label=y"
        for key, name in (("fleet.data", "train"), ("model.data", "held_out"))
    )
    prepared = prepare(fleet_of(MIXED, "fleet.devices=3", "fleet.samples=0", *uris))
    assert sorted(share.y.tolist() for share in prepared.shares) == [[0], [1], [1]]
    assert all(share.x.tolist() == [[0.0, 2.0] * 32] for share in prepared.shares)


def test_operations_of_a_step() -> None:
    """Linear, 64 to 10, ten samples: forward and the weights' gradient; the images need none."""
    assert prepare(fleet_of(MIXED)).flops == 2 * (2 * 10 * 64 * 10)
    assert prepare(fleet_of(MIXED, "local.batch=5")).flops == 2 * (2 * 5 * 64 * 10)
