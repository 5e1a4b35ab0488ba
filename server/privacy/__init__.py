"""Differential privacy of a run: what it has cost so far, and which devices may still take part.

accounting.py asks dp-accounting for epsilon; participations.py counts the updates of devices. The noise is in
descent/noise.py. Imports shared only, and dp-accounting once a run is private.
"""

from edgeflock.server.privacy.accounting import Accountant, check_privacy, noise_of
from edgeflock.server.privacy.participations import Participations, count_updates, pack_summed
