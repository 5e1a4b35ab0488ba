"""Sphinx: `python -m sphinx -W -b html docs build/site`, and `-b man` for the manual pages."""

import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs.site import commands  # noqa: E402
from edgeflock import __version__  # noqa: E402

project, version, release = "Edgeflock", __version__, __version__
copyright = "the Edgeflock authors, Apache-2.0"
extensions = ["myst_parser"]
exclude_patterns = ["site", "results/*.json"]
myst_enable_extensions = ["deflist", "attrs_inline"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "Edgeflock"
html_static_path: list[str] = []
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0a6e5c", "color-brand-content": "#0a6e5c"},
    "dark_css_variables": {"color-brand-primary": "#4fd1b5", "color-brand-content": "#4fd1b5"},
}

MANUALS = {f"edgeflock-{name.replace(' ', '-')}": (name, command) for name, command in commands.commands()}
man_pages = [
    (f"reference/manual/{page}", page, (command.help or "").strip().partition("\n")[0], [], 1)
    for page, (_, command) in MANUALS.items()
]


def write(app: Sphinx) -> None:
    """Write what the manual pages are made of; what says the same is left as it is."""
    folder = Path(app.srcdir) / "reference" / "manual"
    folder.mkdir(exist_ok=True)
    for name, (title, command) in MANUALS.items():
        path, text = folder / f"{name}.md", f"---\norphan: true\n---\n{commands.manual(title, command)}"
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]*)(#[^)]*)?\)")


def read(app: Sphinx, page: str, text: list[str]) -> None:
    """A link to what lies beside the documentation becomes that file's name: the site has pages alone."""
    depth = page.count("/") + 1

    def told(link: re.Match[str]) -> str:
        within = link[2].count("..") < depth
        return link[0] if within else f"{link[1]} (`{link[3]}`)"

    text[0] = OUTSIDE.sub(told, text[0])


def setup(app: Sphinx) -> None:
    app.add_lexer("hex", TextLexer)
    app.connect("builder-inited", write)
    app.connect("source-read", read)
