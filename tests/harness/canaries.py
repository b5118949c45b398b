"""Secrets that tests have handed out, and the search for them where none may be: logs, and the database's texts."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import asyncpg

_KEY = re.compile(r"svc_live_[0-9A-Za-z]{44}")
_WORD = re.compile(r"[0-9A-Za-z_-]{16,}")
# What customers send is theirs: a test may well mail a word that is a secret elsewhere.
_CONTENT = frozenset({"message_bodies"})

SECRETS: set[str] = set()
PHRASES: set[str] = set()


def note(secret: str) -> str:
    """Remember a secret made of letters, digits, `_` and `-`; gives it back."""
    SECRETS.add(secret)
    return secret


def note_phrase(secret: str) -> str:
    """Remember any other secret, such as a password."""
    PHRASES.add(secret)
    return secret


def found_in(text: str) -> set[str]:
    """Return the known secrets in a text, and all strings in the form of an API key."""
    words = set(_WORD.findall(text))
    return {*_KEY.findall(text), *(words & SECRETS), *(phrase for phrase in PHRASES if phrase in text)}


def in_logs(folder: Path) -> Iterator[str]:
    """`file: secret` for each log file under a folder that holds one."""
    for path in sorted(folder.rglob("*log*")):
        if path.is_file():
            for secret in found_in(path.read_text("utf-8", "replace")):
                yield f"{path.name}: {secret[:12]}…"


async def in_database(pool: asyncpg.Pool) -> list[str]:
    """`table: secret` for each table with a row that shows one as text; message content is left out."""
    tables = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') "
        "AND NOT relispartition ORDER BY relname"
    )
    leaks = []
    for table in tables:
        name = table["relname"]
        if name not in _CONTENT:
            rows = await pool.fetch(f'SELECT t::text AS text FROM "{name}" t')
            leaks += [f"{name}: {secret[:12]}…" for secret in _all(row["text"] for row in rows)]
    return leaks


def _all(texts: Iterable[str]) -> set[str]:
    return {secret for text in texts for secret in found_in(text)}
