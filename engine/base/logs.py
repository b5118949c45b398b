"""Structured logs: one JSON line an event on standard output, with the ids that tie it to a request or message.

Never a key, a body or a list of recipients: callers pass ids and counts.
"""

import logging
import sys
from contextlib import suppress
from typing import Any, TextIO

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
            # Where it happened, never with what: the values of a frame are keys, peppers and mail.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(serializer=_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=_Lenient(sys.stdout)),  # type: ignore[arg-type]  # write, flush
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(_Lenient(sys.stdout))
    handler.setFormatter(_StandardLines(process))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler], force=True)


class _Lenient:
    """Standard output that drops a line it can't write: a full disk must not end the work that a line tells of."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            return self._file.write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._file.flush()


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
