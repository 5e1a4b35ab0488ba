"""Log messages that repeat themselves."""

import logging


class OncePerMinute(logging.Filter):
    """Passes one record per minute of each logger, of those that begin with `beginning`."""

    def __init__(self, beginning: str = "") -> None:
        super().__init__()
        self._beginning = beginning
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.getMessage().startswith(self._beginning):
            return True
        if record.created - self._passed.get(record.name, 0.0) < 60:
            return False
        self._passed[record.name] = record.created
        return True
