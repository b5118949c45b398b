"""Error messages of commands: one sentence per error that says what to do.

The only module that writes messages for errors of the system and of the database.
"""

import os
import pwd
from pathlib import Path

from engine.base.errors import Refusal
from engine.base.ids import WrongId
from engine.base.settings import BadSetting, variable
from engine.mail.address import BadAddress
from engine.store.database_errors import (
    BehindPooler,
    DatabaseError,
    DatabaseLoginRefused,
    DatabaseMissing,
    DatabaseUnavailable,
    SchemaMismatch,
    ServerUntrusted,
)
from ops.admin import ApiCallError
from ops.host import disk

FOREIGN = (OSError, DatabaseError)  # raised by the system and the database driver
EXPECTED = (ApiCallError, BadAddress, BadSetting, Refusal, RuntimeError, ValueError, WrongId, *FOREIGN)
_DOCTOR = "Run `ops doctor` to see what is wrong and how to fix it."


def sentence(error: Exception) -> str:
    """Return the message to print for an error of one of the `EXPECTED` types."""
    if isinstance(error, DatabaseUnavailable) and isinstance(error.__cause__, OSError) and not _is_advice(error):
        error = error.__cause__  # the socket's error is more precise
    match error:
        case PermissionError():
            return _not_permitted(error)
        case SchemaMismatch():
            return f"The database schema is too old for this version ({error}). Run `ops migrate`."
        case DatabaseLoginRefused():
            return f"PostgreSQL refused the login: {error}. Correct user and password in {variable('database_url')}."
        case DatabaseMissing():
            return f"PostgreSQL reports: {error}. Create the database, or correct {variable('database_url')}."
        case DatabaseUnavailable() if not _is_advice(error):
            return f"PostgreSQL is unavailable: {_text(error)}. {_DOCTOR}"
        case DatabaseError() if not _is_advice(error):
            return f"PostgreSQL refused the statement: {_text(error)}. {_DOCTOR}"
        case TimeoutError() if not str(error):
            return f"A server did not respond in time. {_DOCTOR}"
        case ConnectionRefusedError():
            return f"Connection refused: {_text(error)}. {_DOCTOR}"
        case _:
            return _text(error)


def _is_advice(error: Exception) -> bool:
    """Return True for an error whose text says what to do."""
    return isinstance(error, BehindPooler | ServerUntrusted)


def _text(error: Exception) -> str:
    if isinstance(error, OSError) and (about_disk := disk.of_error(error)) is not None:
        return about_disk
    return " ".join(str(error).split()).rstrip(".") if isinstance(error, DatabaseError) else str(error) or repr(error)


def _not_permitted(error: PermissionError) -> str:
    me = _name(os.geteuid())
    if error.filename is None:
        return f"User {me} may not do this: {error.strerror or error}. Run the command as the user that runs Waybill."
    owner = _owner(Path(os.fsdecode(error.filename)))
    advice = f" Run the command as {owner}: `sudo -u {owner} …`." if owner not in (None, me) else ""
    return f"User {me} may not use {os.fsdecode(error.filename)}.{advice}"


def _owner(path: Path) -> str | None:
    """Return the owner's user name of a file, or of the nearest readable folder above it."""
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
