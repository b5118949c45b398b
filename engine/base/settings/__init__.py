"""Provide every setting of the service: one Struct, read from the environment in one place.

`fields` declares the settings, `values` converts them from and to text, `checks` validates them, `loading` reads them.
"""

from engine.base.settings.checks import is_small, runs_everything
from engine.base.settings.fields import FRONT, MEBIBYTE, MIN_DISK_BYTES, PROCESSES, SECRETS, Settings
from engine.base.settings.loading import Loaded, load, shown, to_environ, unknown_setting
from engine.base.settings.values import (
    PREFIX,
    BadSetting,
    BlocklistZone,
    HostPort,
    SocketAddress,
    SourceIp,
    text_of,
    variable,
)

__all__ = [
    "FRONT",
    "MEBIBYTE",
    "MIN_DISK_BYTES",
    "PREFIX",
    "PROCESSES",
    "SECRETS",
    "BadSetting",
    "BlocklistZone",
    "HostPort",
    "Loaded",
    "Settings",
    "SocketAddress",
    "SourceIp",
    "is_small",
    "load",
    "runs_everything",
    "shown",
    "text_of",
    "to_environ",
    "unknown_setting",
    "variable",
]
