"""Keep apart what PostgreSQL has once per database, for installations in several schemas of one database.

Advisory locks and channels of NOTIFY have no schema. In the schema `public` their keys and names are those of every
version before; in another one they contain its name.
"""

import re
from typing import Final
from urllib.parse import parse_qs

from engine.base import server_url

# SQL: a number to combine with the key of an advisory lock (`$1::bigint # :lock_schema`); its lower half is 0.
LOCK_SCHEMA: Final = (
    "(CASE current_schema() WHEN 'public' THEN 0 ELSE hashtext(current_schema()::text)::bigint << 32 END)"
)
# SQL: an ending for the name of a channel, which may have 63 octets.
CHANNEL_SCHEMA: Final = "(CASE current_schema() WHEN 'public' THEN '' ELSE '_' || md5(current_schema()::text) END)"
DEFAULT_SEARCH_PATH: Final = '"$user", public'
_IN_OPTIONS: Final = re.compile(r"(?:-c\s*|--)search_path=((?:\\.|\S)+)")


def search_path(database_url: str) -> str:
    """Return the search path that a URL sets, as `?options=-csearch_path%3Dwaybill` or `?search_path=waybill` does."""
    query = parse_qs(server_url.split(database_url).query)
    given = query.get("search_path") or _IN_OPTIONS.findall(query.get("options", [""])[-1])
    return re.sub(r"\\(.)", r"\1", given[-1]) if given else DEFAULT_SEARCH_PATH
