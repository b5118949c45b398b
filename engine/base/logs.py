"""Structured logs: one JSON line an event on standard output, with the ids that tie it to a request or message.

Never a key, a body or a list of recipients: callers pass ids and counts.
"""

import logging
import sys
from typing import Any

import orjson
import structlog


def configure(process: str, level: str) -> None:
    """Set logging up for this process; the standard library's loggers go the same way."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _names(process),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(serializer=_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stdout),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_StandardLines(process))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)


def _names(process: str) -> structlog.types.Processor:
    def name(_logger: Any, _method: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
        line["process"] = process
        return line

    return name


class _StandardLines(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line = {"event": record.getMessage(), "level": record.levelname.lower(), "logger": record.name}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _json({**line, "process": self._process})


def _json(value: Any, **_: object) -> str:
    return orjson.dumps(value, default=str).decode()
