"""What the process says about itself: one JSON line per record on stderr. Requests have their own (`accesslog`)."""

import json
import logging


class JsonLines(logging.Formatter):
    """Control characters are escaped by JSON: a record is always one line, whatever it quotes."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        told: dict[str, object] = {
            "at": record.created,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def set_up(level: str) -> None:
    """Send all logging to stderr, as JSON lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
