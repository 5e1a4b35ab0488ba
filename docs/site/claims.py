"""The table of measured claims, docs/results/index.md: each section with figures, and where these are from.

A section of README.md or docs/*.md claims something if its text has a measured figure (`_FIGURE`), outside of
code. Then it links to what measured it: a page or file of docs/results, or docs/benchmarks.md, where each
figure stands beside such a link. Or it names the command itself. Otherwise it has one of these comments:

    <!-- figures from: results/NAME.md -->    its source; above the first ## heading, that of the page
    <!-- figures: REASON -->                  no measurements, but limits, settings or examples
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FIGURE = re.compile(r"(?<![\w.,/-])\d[\d,.]*(?: to \d[\d,.]*)?(?:%|x\b|\s(?:times|points|ms|us|kB|MB|GB)\b)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SOURCE = re.compile(r"\]\((?:\.\./|docs/)?(results/[\w.-]+?\.(?:md|jsonl?)|benchmarks\.md)(?:#[\w-]+)?\)")
_FROM = re.compile(r"<!-- figures from: (\S+) -->")
_NONE = re.compile(r"<!-- figures: \S.*? -->")
_CODE = re.compile(r"```.*?```|<!--.*?-->|`[^`]*`", re.DOTALL)
_COMMAND = re.compile(r"`((?:python3? -m benchmarks|edgeflock (?:reproduce|fleet|quickstart))[^`]*)`")
_RECORDED = re.compile(r'"command": ?"([^"]+)"')
_DATE = re.compile(r"(20\d\d-\d\d-)(\d\d)(?:,? (?:to|and) (\d\d)\b)?")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Claim:
    """The figures of a section that are from one source."""

    page: str
    title: str
    figures: list[str]
    source: str
    """A path from docs: results/NAME, benchmarks.md, or the page itself; "": there is none."""


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
    links = list(_SOURCE.finditer(body))
    found: dict[str, list[str]] = {}
    for number, link in enumerate(links):
        end = links[number + 1].start() if number + 1 < len(links) else len(body)
        text = body[link.start() if number else 0 : end]
        found.setdefault(link[1], []).extend(_figures(text))
    if not links:
        own = [Path(page).name] if _COMMAND.search(body) else []
        found[next(iter([*_FROM.findall(body), *own, *of_page]), "")] = _figures(body)
    for source, figures in found.items():
        if figures:
            yield Claim(page, title, figures, source)


def _figures(text: str) -> list[str]:
    return list(dict.fromkeys(" ".join(one.split()) for one in _FIGURE.findall(_CODE.sub("", text))))


def _without_blocks(text: str) -> str:
    """Return the text without blocks of code, whose comments look like headings."""
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Provenance:
    """What measured a claim's figures; "" where the source does not say."""

    section: str
    """The heading of the section with at least half of the figures' numbers, "" if there is none."""
    command: str
    date: str


def provenance(claim: Claim, root: Path = ROOT) -> Provenance:
    """Find the section of the source with the most numbers of the claim: its first command, its newest date.

    What the section does not say, the text above the first section says, or the file. The dates of a page's
    runs may be in the .jsonl of its name.
    """
    source = root / "docs" / claim.source
    text = source.read_text("utf-8")
    rows = source.with_suffix(".jsonl")
    everything = text + (rows.read_text("utf-8") if rows.exists() else "")
    if source.suffix != ".md":
        return Provenance("", _first(_RECORDED, text), _newest(everything))
    head, *rest = re.split(r"^## (.+)$", _without_blocks(text), flags=re.MULTILINE)
    sections = [("", head), *zip(rest[::2], rest[1::2], strict=True)]
    numbers = [set(_NUMBER.findall(body)) for _, body in sections]
    held = Counter(number for each in numbers for number in each)
    wanted = set(_NUMBER.findall(" ".join(claim.figures)))
    # A number counts less the more sections have it.
    weights = [sum(1 / held[number] for number in wanted & each) for each in numbers]
    best = weights.index(max(weights))
    is_there = 2 * len(wanted & numbers[best]) >= len(wanted)
    if len(wanted) == 1:  # one number alone may be any other
        is_there = claim.figures[0] in sections[best][1]
    title, body = sections[best] if is_there else ("", head)
    places = (body, head, everything)
    command = _first(_COMMAND, body) or _first(_COMMAND, head) or _first(_COMMAND, "" if title else text)
    command = command.replace(" --finished", "")  # it reports what the same command measured without it
    date = next(filter(None, map(_newest, places)), "")
    return Provenance(title, command, date)


def _newest(text: str) -> str:
    """Return the newest date of a text; "2026-11-20 to 27" has two."""
    return max((month + (last or day) for month, day, last in _DATE.findall(text)), default="")


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return "" if found is None else " ".join(found[1].split())


def claims_page() -> str:
    """Return docs/results/index.md."""
    lines = [
        "# Where each figure is from",
        "",
        "`python -m docs.site` writes this page. It has a row for each section of README.md and docs that",
        "states measured figures. The file's section is the one with most of their numbers, if it has half.",
        "The command is the first one there, and the date the newest. A test fails where figures have no",
        "file. `edgeflock reproduce all --check` measures some of them [again](check.md). No command repeats",
        "what was measured *once, by hand*.",
        "",
        "| section | figures | file | command | date |",
        "|---|---|---|---|---|",
    ]
    for claim in claims():
        more = f" and {len(claim.figures) - _SHOWN} more" if len(claim.figures) > _SHOWN else ""
        found = provenance(claim)
        cells = (
            f"{Path(claim.page).stem}: {claim.title}",
            ", ".join(claim.figures[:_SHOWN]) + more,
            _link(claim.source, found.section),
            f"`{found.command}`" if found.command else "once, by hand",
            found.date,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _link(source: str, section: str) -> str:
    """Return a link from docs/results to `source`, a path from docs, and the name of its section."""
    target = source.removeprefix("results/") if source.startswith("results/") else f"../{source}"
    return f"[{Path(source).name}]({target}){f': {section}' if section else ''}"
