"""Read texts that are written in several languages: a TOML file with one table per language."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

Texts = TypeVar("Texts", bound=Struct)


def localized(module: str, name: str, shape: type[Texts]) -> Mapping[str, Texts]:
    """Return the texts by language of the file `name` beside the file `module`.

    Raises ValidationError if a language lacks one of them.
    """
    found = tomllib.loads((Path(module).parent / name).read_text("utf-8"))
    return {language: msgspec.convert(texts, shape) for language, texts in found.items()}
