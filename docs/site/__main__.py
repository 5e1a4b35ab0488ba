"""Write docs/reference and docs/results/index.md anew."""

from pathlib import Path

from docs.site import PAGES, claims

for name, page in PAGES.items():
    (Path(__file__).parents[1] / "reference" / f"{name}.md").write_text(page(), "utf-8")
(Path(__file__).parents[1] / "results" / "index.md").write_text(claims.claims_page(), "utf-8")
