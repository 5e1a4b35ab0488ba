"""The Welcome of a run of arrays."""

import numpy as np
from numpy.typing import NDArray

from edgeflock.server.engine.welcome import welcome
from edgeflock.shared.protocol.app import App, Arrays, encode
from edgeflock.shared.protocol.messages import Welcome
from edgeflock.shared.settings.config import Config


def welcome_of(contents: dict[str, NDArray[np.generic]], evaluate: int = 0) -> Welcome:
    arrays = Arrays.from_arrays(contents, ())
    return welcome("5f3c0ad1e2b49687", Config(), arrays.layout, app=encode(App({}, evaluate, arrays)))
