"""The page in the browser, and what browsers may ask: files of its own, whose pages are its own.

`assets/` is the page, as it is served: no build step, nothing of others. `Origins` says which pages are the
server's own, `LoginAttempts` who has shown too many tokens that are none.
Pure but for reading the files once; the routes are in operations/page.py. Imports nothing of the server.
"""

from edgeflock.server.web.assets import HEADERS, Asset, assets, edition
from edgeflock.server.web.attempts import LoginAttempts
from edgeflock.server.web.origins import Origins

__all__ = ["HEADERS", "Asset", "LoginAttempts", "Origins", "assets", "edition"]
