"""Whether a device can send what the run asks it for."""

from edgeflock.server.admission import EXPANSION_PER_ENTRY
from edgeflock.shared.compression import quotas
from edgeflock.shared.config import Config
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.layout import Layout


def check_limits(config: Config, layout: Layout) -> None:
    """Raises ConfigError if an update of the model, sent as `config` asks, would be refused."""
    select, balance = config.compression.select, config.compression.balance
    size = layout.parameters.size
    entries = size if select == 1 else sum(quotas(layout.parameters, select, balance))
    worst = 1024 + (4 if select == 1 else 8) * entries + 2 * layout.buffers
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
