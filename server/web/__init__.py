"""The page in the browser, and the checks of browsers' requests: origins and failed logins.

`assets/` is the page as it is served, without a build step or third-party files. `Origins` decides which
pages are the server's own. `LoginAttempts` counts logins with invalid tokens.
Pure, except that it reads the files once. The routes are in http/page.py. Imports nothing of the server.
"""

from edgeflock.server.web.assets import HEADERS, Asset, assets, edition
from edgeflock.server.web.attempts import LoginAttempts
from edgeflock.server.web.origins import Origins

__all__ = ["HEADERS", "Asset", "LoginAttempts", "Origins", "assets", "edition"]
