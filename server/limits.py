"""Whether a device can send what the run asks it for."""

from edgeflock.server.admission import EXPANSION_PER_ENTRY
from edgeflock.shared.config import Config
from edgeflock.shared.errors import ConfigError


def check_limits(config: Config, size: int) -> None:
    """Raises ConfigError if an update of `size` parameters, sent as `config` asks, would be refused."""
    worst = 1024 + (
        4 * size if config.compression.select == 1 else round(8 * size * config.compression.select)
    )
    entries = max(1, round(size * config.compression.select))
    if EXPANSION_PER_ENTRY * entries > config.limits.expansion_bytes:
        raise ConfigError(
            f"limits.expansion_bytes = {config.limits.expansion_bytes}: an update of {entries} entries "
            f"expands to {EXPANSION_PER_ENTRY * entries}; raise it"
        )
    if worst > config.limits.frame_bytes:
        raise ConfigError(
            f"limits.frame_bytes = {config.limits.frame_bytes}: an update of {size} parameters at "
            f"compression.select = {config.compression.select} may take {worst}; raise it"
        )
