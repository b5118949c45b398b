"""What went wrong in a command, as one sentence that says what to do; the only place that words foreign errors."""

import os
import pwd
from pathlib import Path

from engine.base.errors import Refusal
from engine.base.ids import WrongId
from engine.base.settings import BadSetting, variable
from engine.mail.address import BadAddress
from engine.store.database_errors import (
    DatabaseError,
    DatabaseMissing,
    DatabaseUnavailable,
    LoginRefused,
    SchemaMismatch,
)
from ops.admin import ApiError

FOREIGN = (OSError, DatabaseError)  # of the system and of the database
EXPECTED = (ApiError, BadAddress, BadSetting, Refusal, RuntimeError, ValueError, WrongId, *FOREIGN)
_DOCTOR = "`ops doctor` says what is wrong and how to mend it."


def sentence(error: Exception) -> str:
    """Return what to tell the operator about one of `EXPECTED`."""
    if isinstance(error, DatabaseUnavailable) and isinstance(error.__cause__, OSError):
        error = error.__cause__  # the socket says it best
    match error:
        case PermissionError():
            return _not_permitted(error)
        case SchemaMismatch():
            return f"The database lacks what this version needs ({error}). Run `ops migrate`."
        case LoginRefused():
            return f"PostgreSQL does not let us in: {error}. Correct user and password in {variable('database_url')}."
        case DatabaseMissing():
            return f"PostgreSQL says: {error}. Create it, or correct {variable('database_url')}."
        case DatabaseUnavailable():
            return f"PostgreSQL does not serve us now: {_words(error)}. {_DOCTOR}"
        case DatabaseError():
            return f"PostgreSQL refused: {_words(error)}. {_DOCTOR}"
        case TimeoutError() if not str(error):
            return f"No answer in time. {_DOCTOR}"
        case ConnectionRefusedError():
            return f"Nothing answers: {_words(error)}. {_DOCTOR}"
        case _:
            return _words(error)


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") if isinstance(error, DatabaseError) else str(error) or repr(error)


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
