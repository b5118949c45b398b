"""Read all settings from the environment, and write them for child processes and for `ops config`."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from engine.base import server_url
from engine.base.settings.checks import check
from engine.base.settings.fields import SECRETS, Settings
from engine.base.settings.values import PREFIX, BadSetting, parse, text_of, variable

# In the order of their distance from `port_base`; a port that is added comes last.
FROM_BASE = (
    "api_port", "submission_port", "submission_tls_port", "mx_port", "metrics_port", "sink_port", "dns_port",
)  # fmt: skip
# Read by `ops test`, and by the clients of the API: a developer's shell has them.
NOT_SETTINGS = frozenset({"WAYBILL_CHROMIUM", "WAYBILL_API_KEY", "WAYBILL_URL"})
# libpq and redis-py accept a password in the query too.
_QUERY_PASSWORD = re.compile(r"([?&](?:ssl|sentinel_)?password=)[^&]*", re.IGNORECASE)


class Loaded(Struct, frozen=True):
    """Settings and, per field, the source of its value: `default` or the name of the variable."""

    settings: Settings
    origin: dict[str, str]


def load(environ: Mapping[str, str]) -> Loaded:
    """Read all settings. Raises BadSetting for a wrong value or an unknown WAYBILL_ variable."""
    values: dict[str, Any] = {}
    origin = dict.fromkeys(Settings.__struct_fields__, "default")
    known = {variable(field): field for field in Settings.__struct_fields__}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX):
            continue
        field = known.get(name)
        if name in NOT_SETTINGS:
            continue
        if field is None:
            raise BadSetting(unknown_setting(name))
        if text == "":
            continue
        values[field] = parse(name, Settings.__annotations__[field], text)
        origin[field] = name
    if values.get("port_base") is not None:
        for field in [field for field in FROM_BASE if field not in values]:
            values[field] = values["port_base"] + FROM_BASE.index(field)
            origin[field] = variable("port_base")
    settings = msgspec.structs.replace(Settings(), **values)
    if "public_url" not in values:
        settings = msgspec.structs.replace(settings, public_url=f"http://127.0.0.1:{settings.api_port}")
    check(settings)
    return Loaded(settings, origin)


def unknown_setting(name: str) -> str:
    """Return the error text for an unknown variable: it suggests a similar one, or names the page that lists all."""
    close = difflib.get_close_matches(name.removeprefix(PREFIX).lower(), Settings.__struct_fields__, n=1)
    meant = f"Did you mean {variable(close[0])}?" if close else "ops/runbooks/settings.md lists them."
    return f"{name} is not a setting of Waybill. {meant}"


def shown(loaded: Loaded) -> list[tuple[str, str, str]]:
    """Return (variable, value with secrets masked, origin) of every setting, in the order of declaration."""
    rows = []
    for field in Settings.__struct_fields__:
        value = getattr(loaded.settings, field)
        text = text_of(value)
        if field in SECRETS and value is not None:
            text = _masked(text)
        rows.append((variable(field), text, loaded.origin[field]))
    return rows


def to_environ(settings: Settings) -> dict[str, str]:
    """Return the environment variables that give a child process the same settings.

    The ports are spelled out, so `port_base` is left out: it would move a port that is set to its default.
    """
    default = Settings()
    return {
        variable(field): text_of(value)
        for field in Settings.__struct_fields__
        if field != "port_base"
        and (value := getattr(settings, field)) is not None
        and (value != getattr(default, field) or field == "public_url")
    }


def _masked(text: str) -> str:
    """Replace the password in a URL by asterisks, or the whole of any other secret."""
    if "://" not in text:
        return "********"
    password = server_url.split(text).password
    if password:
        text = text.replace(f":{password}@", ":********@")
    return _QUERY_PASSWORD.sub(r"\1********", text)
