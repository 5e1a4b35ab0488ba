"""What goes wrong in the field, briefly: benchmarks/faults does the same for long and with many."""

from pathlib import Path

import pytest

from benchmarks.faults import link, scenarios

needs_a_bad_line = pytest.mark.skipif(bool(link.missing()), reason=f"needs {link.missing()}")


def flawless(figures: scenarios.Figures) -> bool:
    """Whether every receipt is in the journal, once, and the journal leads to one model."""
    return figures["acknowledged"] > 0 and (
        [figures[key] for key in ("lost", "doubled", "gaps", "bit_identical")] == [0, 0, 0, True]
    )


@pytest.mark.slow
@needs_a_bad_line
async def test_a_partition_is_survived(tmp_path: Path) -> None:
    figures = await scenarios.partition(tmp_path / "it", seconds=3, devices=3)
    assert flawless(figures), figures
    assert figures["during"] == 0


@needs_a_bad_line
@pytest.mark.long
async def test_a_long_way_with_lost_packets(tmp_path: Path) -> None:
    figures = await scenarios.bad_weather(tmp_path / "it", seconds=4)
    assert flawless(figures), figures
    assert 0 < figures["receipts_a_second_bad"] <= 8 / 0.3


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "rounds"])
async def test_the_rest_goes_on_when_half_of_the_fleet_crashes(mode: str, tmp_path: Path) -> None:
    figures = await scenarios.half_crashes(tmp_path / "it", seconds=1, mode=mode)
    assert flawless(figures), figures
    assert figures["receipts_a_second_of_the_rest"] > 0


@pytest.mark.slow
async def test_clients_killed_in_the_middle(tmp_path: Path) -> None:
    figures = await scenarios.killed_clients(tmp_path / "it", kills=2, devices=2)
    assert flawless(figures), figures


@pytest.mark.long
async def test_gateways_killed_under_load(tmp_path: Path) -> None:
    figures = await scenarios.killed_gateways(tmp_path / "it", kills=1, devices=4)
    assert flawless(figures), figures


@pytest.mark.long
async def test_a_crowd_comes_back_at_once(tmp_path: Path) -> None:
    figures = await scenarios.crowd(tmp_path / "it", devices=50)
    assert flawless(figures), figures


async def test_many_sessions(tmp_path: Path) -> None:
    figures = await scenarios.sessions(tmp_path / "it", devices=20, minutes=0.02)
    assert flawless(figures), figures
