"""Write docs/reference anew."""

from pathlib import Path

from docs.site import PAGES

for name, page in PAGES.items():
    (Path(__file__).parents[1] / "reference" / f"{name}.md").write_text(page(), "utf-8")
