"""The page in the browser, and what browsers may ask: files of its own, logins, whose pages are its own.

`assets/` is the page, as it is served: no build step, nothing of others. `Origins` says which pages are the
server's own, `Logins` which browsers have shown a token, `Attempts` who has shown too many that are none.
Pure but for reading the files once; the routes are in operations/page.py. Imports nothing of the server.
"""

from edgeflock.server.web.assets import HEADERS, Asset, assets
from edgeflock.server.web.logins import SECONDS, Attempts, Logins
from edgeflock.server.web.origins import Origins

__all__ = ["HEADERS", "SECONDS", "Asset", "Attempts", "Logins", "Origins", "assets"]
