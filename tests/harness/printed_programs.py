"""Programs of guides in several languages, written to a file as printed and run with this machine's interpreter."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec import Struct

_PROGRAMS = {
    "python": ("py", [sys.executable]), "js": ("mjs", ["node"]), "php": ("php", ["php"]), "ruby": ("rb", ["ruby"]),
    "go": ("go", ["go", "run"]),
}  # fmt: skip
PROGRAM_S = 90.0


class Printed(Struct, frozen=True):
    """The exit status and the output of a program."""

    status: int
    out: str


def has(language: str) -> bool:
    """Return True if this machine runs programs in the language."""
    return shutil.which(_PROGRAMS[language][1][0]) is not None


async def run(language: str, text: str, folder: Path, environ: Mapping[str, str]) -> Printed:
    """Run a program in `folder`; skips the test where its language is not installed."""
    ending, words = _PROGRAMS[language]
    if not has(language):
        pytest.skip(f"{words[0]} is not installed")
    file = folder / f"main.{ending}"
    file.write_text(text)
    process = await asyncio.create_subprocess_exec(
        *words, str(file), cwd=folder, env={**os.environ, "NO_PROXY": "*", **environ},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PROGRAM_S):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Printed(process.returncode, out.decode("utf-8", "replace"))
