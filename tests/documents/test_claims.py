"""Figures in the documentation: each section with figures has a row in docs/results/index.md."""

from pathlib import Path

import pytest

from docs.site import claims
from docs.site.claims import Claim

CLAIMS = list(claims.claims())
REMEDY = (
    "link the page of docs/results that has the measurement, or add one of the comments that "
    "docs/site/claims.py lists; then run python -m docs.site"
)


def name_of(claim: Claim) -> str:
    return f"{Path(claim.page).stem}: {claim.title}"


def test_there_are_claims() -> None:
    assert len({claim.page for claim in CLAIMS}) > 10
    assert any(claim.page == "README.md" for claim in CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=name_of)
def test_each_figure_has_a_source_with_a_date(claim: Claim) -> None:
    assert claim.source, (
        f"{name_of(claim)} has figures ({', '.join(claim.figures[:4])}) and no source: {REMEDY}"
    )
    source = claims.ROOT / "docs" / claim.source
    assert source.exists(), f"{name_of(claim)}: there is no docs/{claim.source}"
    if claim.source.startswith("results/"):
        assert claims.provenance(claim).date, f"docs/{claim.source} does not say when it was measured"


def test_each_has_a_row() -> None:
    page = (claims.ROOT / "docs" / "results" / "index.md").read_text("utf-8")
    rows = {line.split(" | ")[0].removeprefix("| ") for line in page.splitlines()}
    missing = {name_of(claim).replace("|", "/") for claim in CLAIMS} - rows
    assert not missing, f"docs/results/index.md lacks {missing}: {REMEDY}"


def found(tmp_path: Path, text: str) -> list[tuple[list[str], str]]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(text)
    return [(claim.figures, claim.source) for claim in claims.claims(tmp_path)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## A\n\nIt is 3 times faster.\n", [(["3 times"], "")]),
        ("## A\n\nWait `90%` of it, or 4 of 5.\n\n```sh\n# 90%\n```\n", []),
        ("## A\n\n<!-- figures: limits -->\n\nAt most 90%.\n", []),
        ("## A\n\n<!-- figures from: results/a.md -->\n\n90%.\n", [(["90%"], "results/a.md")]),
        ("# T\n\n<!-- figures from: results/a.md -->\n\n## A\n\n90%.\n", [(["90%"], "results/a.md")]),
        ("## A\n\n`python -m benchmarks.push`: 2 ms.\n", [(["2 ms"], "README.md")]),
        (
            "## A\n\n1 kB ([a](docs/results/a.md#x)), 2 kB. [b](docs/results/b.md): 3 MB.\n",
            [(["1 kB", "2 kB"], "results/a.md"), (["3 MB"], "results/b.md")],
        ),
    ],
)
def test_what_counts(tmp_path: Path, text: str, expected: list[tuple[list[str], str]]) -> None:
    assert found(tmp_path, text) == expected


SOURCE = """# T

`python -m benchmarks.a`, 2026-11-20.

## One

3 ms, 90%.

## Two

`python -m benchmarks.b --x 1`, 2026-11-21 and 2026-11-22.

90%, 5 kB

### Part

7 kB
"""


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        (["3 ms", "90%"], ("One", "python -m benchmarks.a", "2026-11-20")),
        (["90%", "7 kB"], ("Two", "python -m benchmarks.b --x 1", "2026-11-22")),
        (["8 GB"], ("", "python -m benchmarks.a", "2026-11-20")),
    ],
)
def test_provenance_is_that_of_the_section_with_the_figures(
    tmp_path: Path, figures: list[str], expected: tuple[str, str, str]
) -> None:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "a.md").write_text(SOURCE)
    claim = Claim("README.md", "A", figures, "results/a.md")
    assert claims.provenance(claim, tmp_path) == claims.Provenance(*expected)
