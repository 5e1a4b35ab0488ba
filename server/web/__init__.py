"""The pages in the browser, and the checks of browsers' requests: origins and failed logins.

`assets/` is the monitor and `train/` the training page, as they are served, without a build step.
libraries.py has the npm packages that the training page loads. `Origins` decides which pages are the server's
own. `hindrance` says what keeps browsers from an address. `LoginAttempts` counts logins with invalid tokens.
The routes are in http/page.py and http/training_page.py. Imports nothing of the server.
"""

from edgeflock.server.web.assets import (
    HEADERS,
    TRAINING_HEADERS,
    Asset,
    asset,
    assets,
    edition,
    training_assets,
)
from edgeflock.server.web.attempts import LoginAttempts
from edgeflock.server.web.invitations import hindrance
from edgeflock.server.web.libraries import library_file, missing_libraries
from edgeflock.server.web.origins import Origins
