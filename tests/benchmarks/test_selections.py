"""Selections at equal accuracy: their fleets, which setting counts, and the page."""

from pathlib import Path

from benchmarks.selections import best, figures, markdown, measured, rows
from edgeflock.results.outcomes import Outcome, Setting

EVERY = list(rows(1500))


def setting_of(*reached: tuple[float, int], label: str = "it", seed: int = 0) -> Setting:
    """An evaluation for each (accuracy, bytes up); as many bytes come down."""
    run = [
        {"updates": 50 * number, "seconds": 2.0 * number, "accuracy": accuracy, "ingress": up, "egress": up}
        for number, (accuracy, up) in enumerate(reached, 1)
    ]
    return Setting(label, [Outcome(run, {"seed": seed, "ended": "complete"})])


def test_every_setting_has_a_folder_of_its_own() -> None:
    assert len({row.job(0, Path()).directory for row in EVERY}) == len(EVERY) == 28


def test_only_what_devices_select_differs() -> None:
    assert (
        len(
            {row.file.coordination.model_copy(update={"learning_rate": 1}).model_dump_json() for row in EVERY}
        )
        == 1
    )
    assert len({row.file.downlink.model_dump_json() for row in EVERY}) == 1
    assert {row.file.downlink.mode for row in EVERY} == {"lossy"}
    assert len({row.file.model_dump_json(include={"fleet", "devices"}) for row in EVERY}) == 1
    chosen = {row.method: row.file.compression for row in EVERY}
    assert (chosen["significance"].selection, chosen["significance"].feedback) == ("significance", 1.0)
    assert (chosen["top-k"].feedback, chosen["AdaComp"].feedback) == (1.0, 0.0)
    assert chosen["adaptive (ScaDLES)"].threshold > 0
    assert chosen["record"].select == 0.0005


def test_the_setting_counts_that_gets_farthest_for_the_fewest_bytes() -> None:
    cheap, dear = setting_of((0.95, 5), (0.97, 10)), setting_of((0.97, 11))
    short = setting_of((0.96, 1))
    one, two, three, *_ = EVERY
    assert best([(one, short), (two, dear), (three, cheap)]) is three
    assert best([(one, short), (two, setting_of((0.951, 2)))]) is one
    assert best([(one, setting_of((0.5, 1))), (two, setting_of((0.6, 9)))]) is two


def test_the_page_has_a_dash_for_what_was_not_reached() -> None:
    both = Setting(
        "c = 1", [*setting_of((0.95, 500), (0.975, 1000)).outcomes, *setting_of((0.96, 700)).outcomes]
    )
    found = figures(both)
    assert found["at"]["0.97"] is None
    assert found["at"]["0.95"] == {
        "ingress": 600,
        "egress": 600,
        "traffic": 1200,
        "seconds": 2,
        "updates": 50,
    }
    page = markdown(
        {"command": "it", "date": "today", "machine": "here", "selections": {"top-k": found}, "grid": {}}
    )
    lines = [line for line in page.splitlines() if line.startswith("| top-k |")]
    assert lines == [
        "| top-k | c = 1 | 2 | - | - | - | - | - | 96.75% | 96.75% | 96.12% |",
        "| top-k | c = 1 | 2 | 600 B | 600 B | 1.2 kB | 2.0 s | 50 | 96.75% | 96.75% | 96.12% |",
        "| top-k | c = 1 | 2 | 600 B | 600 B | 1.2 kB | 2.0 s | 50 | 96.75% | 96.75% | 96.12% |",
    ]


def test_nothing_has_been_measured_before_it_is_run(tmp_path: Path) -> None:
    assert measured(EVERY[0], range(3), tmp_path) is None
