"""Join the vendored ES modules of the console into one module.

The published files import each other by bare names, which browsers resolve only with an inline import map. Each file
becomes a function that returns its exports, so that minified names of two files don't clash. Called at start.
"""

import re
from typing import Final

# In order of use: a module comes after those that it imports.
JOINED: Final = {
    "preact": "preact.mjs",
    "preact/hooks": "hooks.mjs",
    "@preact/signals-core": "signals-core.mjs",
    "@preact/signals": "signals.mjs",
    "htm": "htm.mjs",
}

_COMMENT_LINES = re.compile(rb"^[ \t]*(?://[^\n]*|/\*(?:(?!\*/).)*?\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r'import\{([^}]*)\}from"([^"]+)";')
_REEXPORT = re.compile(r'export\{([^}]*)\}from"([^"]+)";')
_EXPORT = re.compile(r"export\{([^}]*)\};?")
_DEFAULT = re.compile(r"export default ")
_SOURCE_MAP = re.compile(r"//# sourceMappingURL=\S+")


def joined(files: dict[str, str]) -> str:
    """Return one module that exports everything that `files` (source by file name) export; htm's default as `htm`."""
    pieces, names = [], set[str]()
    for number, (module, file) in enumerate(JOINED.items()):
        body, exported = _as_function(files[file])
        fresh = sorted(exported - names - {"default"})
        names |= exported
        pieces.append(f"const m{number}=(()=>{{{body}}})();")
        if fresh:
            pieces.append(f"export const {{{','.join(fresh)}}}=m{number};")
        if "default" in exported:
            pieces.append(f"export const {module}=m{number}.default;")
    return "\n".join(pieces) + "\n"


def without_comments(module: bytes) -> bytes:
    """Return a module of the console without comments that stand on lines of their own: an eighth of its octets.

    The text of a template in such a module has no line that begins with `//` or `/*`.
    """
    return _COMMENT_LINES.sub(b"", module)


def _as_function(source: str) -> tuple[str, set[str]]:
    """Return the body of a function that returns the exports of the module, and their names."""
    body = _SOURCE_MAP.sub("", source).strip()
    returned: dict[str, str] = {}
    for names, module in _REEXPORT.findall(body):
        returned |= {outer: f"m{_number(module)}.{inner}" for inner, outer in _pairs(names)}
    body = _REEXPORT.sub("", body)
    body = _IMPORT.sub(lambda found: _destructured(found[1], found[2]), body)
    for names in _EXPORT.findall(body):
        returned |= {outer: inner for inner, outer in _pairs(names)}
    body = _EXPORT.sub("", body)
    if _DEFAULT.search(body):
        body = _DEFAULT.sub("const _default=", body)
        returned["default"] = "_default"
    fields = ",".join(f"{outer}:{inner}" for outer, inner in returned.items())
    return f"{body.rstrip(';')};return{{{fields}}};", set(returned)


def _destructured(names: str, module: str) -> str:
    fields = ",".join(inner if inner == local else f"{inner}:{local}" for inner, local in _pairs(names))
    return f"const {{{fields}}}=m{_number(module)};"


def _pairs(names: str) -> list[tuple[str, str]]:
    """Return (name, name after `as`) of each part of an import or export clause."""
    found = []
    for part in names.split(","):
        first, _, second = part.strip().partition(" as ")
        found.append((first, second or first))
    return found


def _number(module: str) -> int:
    return list(JOINED).index(module)
