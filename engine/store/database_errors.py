"""Define the exceptions of database access, and translate those of asyncpg to them in one place.

`engine.store.postgres` translates at every statement of its sessions and at every acquire of its pools, so that no
module outside `engine.store` names an exception of the driver. `engine.store.redis_errors` does the same for Redis.
"""
# ruff: noqa: N818 - the exceptions are named for the state or the event

import errno
import os
import ssl
from typing import Final

import asyncpg
from asyncpg import exceptions

from engine.store.cancellation import raise_if_cancelled


class DatabaseError(Exception):
    """A statement failed. A DatabaseError without a subclass is a bug: the statement is wrong."""


class DatabaseUnavailable(DatabaseError):
    """PostgreSQL is down, restarting, out of connections or disk space, or too slow: try again later.

    The statement may have been committed if only its response was lost.
    """


class SessionLost(DatabaseUnavailable):
    """The session had ended before the statement was sent, or no server accepts writes: nothing was executed."""


class DiskFull(DatabaseUnavailable):
    """The server has no disk space left."""


class StorageUnwritable(DatabaseUnavailable):
    """The server can't write its files: their file system is read-only, or refuses it."""


class LockUnavailable(DatabaseUnavailable):
    """A lock was not granted within `lock_timeout`; nothing was written."""


class Deadlock(DatabaseUnavailable):
    """PostgreSQL ended the transaction to resolve a deadlock; nothing was written."""


class StatementCanceled(DatabaseUnavailable):
    """The statement exceeded `statement_timeout`, or an operator canceled it."""


class MissingPartition(DatabaseUnavailable):
    """No partition exists for the week of a row. Nothing was written; the session has requested the partition, so
    repeat the transaction.
    """


class BadData(DatabaseError):
    """PostgreSQL or asyncpg can't represent a value: a retry fails in the same way."""


class ConstraintViolation(DatabaseError):
    """A row violates an integrity constraint; `constraint` is its name."""

    def __init__(self, text: str, constraint: str | None) -> None:
        super().__init__(text)
        self.constraint = constraint


class UniqueViolation(ConstraintViolation):
    """A row with this key exists already."""


class ForeignKeyViolation(ConstraintViolation):
    """The referenced row does not exist, or a row is still referenced."""


class AccountMoving(DatabaseUnavailable):
    """The account is moving to another cell, or has moved: nothing was written. Try again within seconds."""


class SchemaMismatch(DatabaseError):
    """A table or column does not exist: the database lacks migrations of this version."""


class DatabaseLoginRefused(DatabaseError):
    """The server rejects the user or the password of the URL."""


class ServerUntrusted(DatabaseUnavailable):
    """The server's certificate is not accepted: nothing was sent to it, no password either."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"PostgreSQL's certificate is not accepted ({problem}). Correct the host name or sslrootcert in"
            " WAYBILL_DATABASE_URL, or the certificate."
        )


class BehindPooler(DatabaseError):
    """The URL leads to a connection pooler, which refuses or drops the settings of our sessions."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"WAYBILL_DATABASE_URL points to a connection pooler such as PgBouncer ({found}). Connect directly to "
            "PostgreSQL: poolers are not supported."
        )


class DatabaseMissing(DatabaseError):
    """The server has no database with the name in the URL."""


# Everything that asyncpg raises, and what sockets and time-outs below it raise (TimeoutError is an OSError).
DRIVER_ERRORS: Final = (
    asyncpg.PostgresError, asyncpg.InterfaceError, exceptions.InternalClientError, OSError,
)  # fmt: skip

# The first row that matches decides. asyncpg derives its own DataError from InterfaceError, hence the order.
_TRANSLATIONS: Final[tuple[tuple[type[Exception], type[DatabaseError]], ...]] = (
    (exceptions.ClientConfigurationError, DatabaseError),  # the URL is wrong
    (asyncpg.DataError, BadData),
    (exceptions._base.DataError, BadData),  # noqa: SLF001 - asyncpg does not export its own
    (exceptions.InternalClientError, SessionLost),
    (exceptions.UniqueViolationError, UniqueViolation),
    (exceptions.ForeignKeyViolationError, ForeignKeyViolation),
    (exceptions.IntegrityConstraintViolationError, ConstraintViolation),
    (exceptions.DiskFullError, DiskFull),
    (exceptions.LockNotAvailableError, LockUnavailable),
    (exceptions.DeadlockDetectedError, Deadlock),
    (exceptions.QueryCanceledError, StatementCanceled),
    (exceptions.UndefinedTableError, SchemaMismatch),
    (exceptions.UndefinedColumnError, SchemaMismatch),
    (exceptions.InvalidAuthorizationSpecificationError, DatabaseLoginRefused),  # InvalidPasswordError is one
    (exceptions.InvalidCatalogNameError, DatabaseMissing),
    (OSError, DatabaseUnavailable),
    (asyncpg.PostgresConnectionError, DatabaseUnavailable),
    (asyncpg.InterfaceError, DatabaseUnavailable),
    (exceptions.CannotConnectNowError, DatabaseUnavailable),
    (exceptions.AdminShutdownError, DatabaseUnavailable),
    (exceptions.CrashShutdownError, DatabaseUnavailable),
    (exceptions.ObjectNotInPrerequisiteStateError, DatabaseUnavailable),  # a database that is being closed
    (exceptions.InsufficientResourcesError, DatabaseUnavailable),  # too many connections, out of memory
    (exceptions.PostgresSystemError, DatabaseUnavailable),
    (exceptions.InternalServerError, DatabaseUnavailable),
    (exceptions.ReadOnlySQLTransactionError, DatabaseUnavailable),
)


_FENCES: Final = frozenset({"account_heads_closed", "accounts_moving"})  # of migration 0097
_UNSUPPORTED: Final = "unsupported startup parameter"  # PgBouncer's words; PostgreSQL knows all that we set
# PostgreSQL reports EROFS, EACCES and EPERM of its own files with the code of a missing privilege, 42501
# (errcode_for_file_access in elog.c). These sources open and write files, and check no privilege of a user.
_FILE_SOURCES: Final = frozenset({"bufmgr.c", "copydir.c", "fd.c", "md.c", "slru.c", "storage.c", "xlog.c"})


def translated(error: Exception) -> DatabaseError:
    """Return the exception to raise for one of DRIVER_ERRORS.

    Raises CancelledError instead if the task is being cancelled.
    """
    raise_if_cancelled(error)
    return _ours(error)


def _ours(error: Exception) -> DatabaseError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ServerUntrusted(error.verify_message.rstrip("."))
    kind = next((ours for theirs, ours in _TRANSLATIONS if isinstance(error, theirs)), DatabaseError)
    if isinstance(error, exceptions.InsufficientPrivilegeError) and _is_about_files(error):
        kind = StorageUnwritable
    text = str(error) or type(error).__name__
    if isinstance(error, exceptions.ProtocolViolationError) and _UNSUPPORTED in text:
        return BehindPooler(text)
    if issubclass(kind, ConstraintViolation):
        constraint = getattr(error, "constraint_name", None)
        return AccountMoving(text) if constraint in _FENCES else kind(text, constraint)
    return kind(text)


def _is_about_files(error: Exception) -> bool:
    return getattr(error, "server_source_filename", None) in _FILE_SOURCES or os.strerror(errno.EROFS) in str(error)
