"""Write structured logs: one JSON line per event on standard output, with the ids of its request or message.

Callers pass ids and counts, never a key, a body or a list of addresses. `ops log level` changes the level of a running
process for a limited time through a file in the state folder, which each process reads once a second.
"""

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from engine.base.log_levels import LEVELS_FILE, read_levels
from engine.base.log_output import LogOutput

READ_EVERY_S: Final = 1.0
_NUMBERS: Final = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
    "exception": logging.ERROR, "critical": logging.CRITICAL,
}  # fmt: skip


def configure(process: str, level: str, state: Path | None = None) -> None:
    """Set up logging for this process, for structlog and for the standard library's loggers.

    With `state`, the process follows `LEVELS_FILE` in that folder.
    """
    number = _NUMBERS[level]
    output = LogOutput(sys.stdout)
    threshold = Threshold(process, number, None if state is None else state / LEVELS_FILE)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _names(process),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            # No local variables in tracebacks: they may hold keys, the pepper or mail.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(serializer=_json),
        ],
        wrapper_class=_filtering(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=output),  # type: ignore[arg-type]  # write, flush
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[standard_handler(process, output)], force=True)


def standard_handler(process: str, output: LogOutput | None = None) -> logging.Handler:
    """Return a handler that writes the lines of a standard library's logger as the lines of this process."""
    handler = logging.StreamHandler(output or LogOutput(sys.stdout))
    handler.setFormatter(_StandardLines(process))
    return handler


class Threshold:
    """The lowest level that a process writes: the one of its settings, or for a while the one of `LEVELS_FILE`."""

    def __init__(self, process: str, configured: int, file: Path | None) -> None:
        self._process = process
        self._configured = configured
        self._file = file
        self._number = configured
        self._read_at = 0.0

    def allows(self, number: int) -> bool:
        """Return True if a line of this level must be written."""
        if time.monotonic() >= self._read_at:
            self._read()
        return number >= self._number

    def _read(self) -> None:
        self._read_at = time.monotonic() + READ_EVERY_S
        override = None if self._file is None else read_levels(self._file, time.time()).get(self._process)
        number = self._configured if override is None else _NUMBERS[override["level"]]
        if number != self._number:
            self._number = number
            logging.getLogger().setLevel(max(number, logging.WARNING))


def _filtering(threshold: Threshold) -> type[Any]:
    """Return structlog's logger with methods that check `threshold` first: a line below it costs 1 µs."""
    everything = structlog.make_filtering_bound_logger(logging.DEBUG)

    def guarded(name: str) -> Callable[..., Any]:
        write, number = getattr(everything, name), _NUMBERS[name]

        def method(self: Any, event: str, *args: Any, **fields: Any) -> Any:
            return write(self, event, *args, **fields) if threshold.allows(number) else None

        return method

    def is_enabled_for(_self: Any, number: int) -> bool:
        return threshold.allows(number)

    methods = {name: guarded(name) for name in _NUMBERS}
    return type("LevelledLogger", (everything,), {**methods, "is_enabled_for": is_enabled_for})


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
        line = {"event": record.getMessage(), "level": record.levelname.lower(), "logger": record.name.lstrip("_")}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")  # as structlog writes it
        return _json({**line, "process": self._process, "at": at})


def _json(value: Any, **_: object) -> str:
    return orjson.dumps(value, default=str).decode()
