"""What went wrong in a command, as one sentence that says what to do; the only place that words foreign errors."""

import os
import pwd
from pathlib import Path

import asyncpg
from engine.store.database_errors import DatabaseUnavailable, SchemaMismatch, SessionLost

from engine.base.errors import Refusal
from engine.base.ids import WrongId
from engine.base.settings import BadSetting, variable
from engine.mail.address import BadAddress
from ops.operate import ApiError

_DATABASE = (asyncpg.PostgresError, asyncpg.InterfaceError, SessionLost)
FOREIGN = (OSError, *_DATABASE)  # of the system and of PostgreSQL
EXPECTED = (ApiError, BadAddress, BadSetting, Refusal, RuntimeError, ValueError, WrongId, *FOREIGN)
_DOCTOR = "`ops doctor` says what is wrong and how to mend it."


def sentence(error: Exception) -> str:
    """Return what to tell the operator about one of `EXPECTED`."""
    match error:
        case PermissionError():
            return _not_permitted(error)
        case SchemaMismatch() | asyncpg.UndefinedColumnError():
            return f"The database lacks what this version needs ({error}). Run `ops migrate`."
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return f"PostgreSQL does not let us in: {error}. Correct user and password in {variable('database_url')}."
        case asyncpg.InvalidCatalogNameError():
            return f"PostgreSQL says: {error}. Create it, or correct {variable('database_url')}."
        case _ if isinstance(error, _DATABASE) and isinstance(error, DatabaseUnavailable):
            return f"PostgreSQL does not serve us now: {_words(error)}. {_DOCTOR}"
        case _ if isinstance(error, _DATABASE):
            return f"PostgreSQL refused: {_words(error)}. {_DOCTOR}"
        case TimeoutError() if not str(error):
            return f"No answer in time. {_DOCTOR}"
        case ConnectionRefusedError():
            return f"Nothing answers: {_words(error)}. {_DOCTOR}"
        case _:
            return _words(error)


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") if isinstance(error, _DATABASE) else str(error) or repr(error)


def _not_permitted(error: PermissionError) -> str:
    me = _name(os.geteuid())
    if error.filename is None:
        return f"The user {me} may not do this: {error.strerror or error}."
    owner = _owner(Path(os.fsdecode(error.filename)))
    advice = f" Run the command as {owner}: `sudo -u {owner} …`." if owner not in (None, me) else ""
    return f"The user {me} may not use {os.fsdecode(error.filename)}.{advice}"


def _owner(path: Path) -> str | None:
    """Return who owns a file, or the nearest folder above it that can be looked at."""
    for one in (path, *path.parents):
        try:
            return _name(one.stat().st_uid)
        except OSError:
            continue
    return None


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
