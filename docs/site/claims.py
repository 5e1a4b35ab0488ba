"""The table of measured claims, docs/results/index.md: each section with figures, and where these are from.

A section of README.md or docs/*.md claims something if its text has a measured figure (`_FIGURE`), outside of
code. Then it links to what measured it: a page or file of docs/results, or docs/benchmarks.md, where each
figure stands beside such a link. Or it names the command itself. Otherwise it has one of these comments:

    <!-- figures from: results/NAME.md -->    its source; above the first ## heading, that of the page
    <!-- figures only here: 2026-11-21 -->    measured on that day, and kept in no file
    <!-- figures: REASON -->                  no measurements, but limits, settings or examples
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FIGURE = re.compile(r"(?<![\w.,/-])\d[\d,.]*(?: to \d[\d,.]*)?(?:%|x\b|\s(?:times|points|ms|us|kB|MB|GB)\b)")
_SOURCE = re.compile(r"\]\((?:\.\./|docs/)?(results/[\w.-]+?\.(?:md|jsonl?)|benchmarks\.md)(?:#[\w-]+)?\)")
_FROM = re.compile(r"<!-- figures from: (\S+) -->")
_ONLY = re.compile(r"<!-- figures only here: (20\d\d-\d\d-\d\d) -->")
_NONE = re.compile(r"<!-- figures: \S.*? -->")
_CODE = re.compile(r"```.*?```|<!--.*?-->|`[^`]*`", re.DOTALL)
_COMMAND = re.compile(r"`((?:python3? -m benchmarks|edgeflock (?:reproduce|fleet|quickstart))[^`]*)`")
_RECORDED = re.compile(r'"command": ?"([^"]+)"')
_DATE = re.compile(r"20\d\d-\d\d-\d\d")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Claim:
    """The figures of a section that are from one source."""

    page: str
    title: str
    figures: list[str]
    source: str
    """A path from docs: results/NAME, benchmarks.md, or the page itself; "": there is none."""
    only_here: str
    """The date of figures that no file has."""


def claims(root: Path = ROOT) -> Iterator[Claim]:
    """Yield the claims of README.md and docs/*.md, also those without a source."""
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        text = _without_blocks(page.read_text("utf-8"))
        first, *rest = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
        of_page = _FROM.findall("".join([first, *rest[1:2]]))
        for title, body in zip(rest[::2], rest[1::2], strict=True):
            if not _NONE.search(body):
                yield from _of_section(str(page.relative_to(root)), title, body, of_page)


def _of_section(page: str, title: str, body: str, of_page: list[str]) -> Iterator[Claim]:
    """Yield the claims of a section. The figures behind a link are from it, the first ones from the first."""
    only_here = "".join(_ONLY.findall(body)[:1])
    links = list(_SOURCE.finditer(body))
    found: dict[str, list[str]] = {}
    for number, link in enumerate(links):
        end = links[number + 1].start() if number + 1 < len(links) else len(body)
        text = body[link.start() if number else 0 : end]
        found.setdefault(link[1], []).extend(_figures(text))
    if not links:
        own = [Path(page).name] if only_here or _COMMAND.search(body) else []
        found[next(iter([*_FROM.findall(body), *own, *of_page]), "")] = _figures(body)
    for source, figures in found.items():
        if figures:
            yield Claim(page, title, figures, source, only_here)


def _figures(text: str) -> list[str]:
    return list(dict.fromkeys(" ".join(one.split()) for one in _FIGURE.findall(_CODE.sub("", text))))


def _without_blocks(text: str) -> str:
    """Return the text without blocks of code, whose comments look like headings."""
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)


def provenance(source: Path) -> tuple[str, str]:
    """Return (first command, newest date) of a file of results, "" where it does not say.

    The dates of a page's runs may be in the .jsonl of its name.
    """
    text = source.read_text("utf-8")
    found = (_COMMAND if source.suffix == ".md" else _RECORDED).search(text)
    command = "" if found is None else " ".join(found[1].split())
    rows = source.with_suffix(".jsonl")
    dates = _DATE.findall(text + (rows.read_text("utf-8") if rows.exists() else ""))
    return command, max(dates, default="")


def claims_page() -> str:
    """Return docs/results/index.md."""
    lines = [
        "# Where each figure is from",
        "",
        "`python -m docs.site` writes this page. It has a row for each section of README.md and docs that",
        "states measured figures. The command is the first one of the file, and the date its newest one. A",
        "test fails where a section has figures and no file. `edgeflock reproduce all --check` measures some",
        "of them [again](check.md).",
        "",
        "| section | figures | file | command | date |",
        "|---|---|---|---|---|",
    ]
    for claim in claims():
        more = f" and {len(claim.figures) - _SHOWN} more" if len(claim.figures) > _SHOWN else ""
        command, date = "", claim.only_here
        if not date:
            command, date = provenance(ROOT / "docs" / claim.source)
        cells = (
            f"{Path(claim.page).stem}: {claim.title}",
            ", ".join(claim.figures[:_SHOWN]) + more,
            "only there" if claim.only_here else _link(claim.source),
            f"`{command}`" if command else "",
            date,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _link(source: str) -> str:
    """Return a link from docs/results to `source`, a path from docs."""
    target = source.removeprefix("results/") if source.startswith("results/") else f"../{source}"
    return f"[{Path(source).name}]({target})"
