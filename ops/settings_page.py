"""Generate ops/runbooks/settings.md from the definitions of the settings, for `ops config --page`."""

from typing import Final

from engine.base.settings_docs import SettingDoc, documented
from engine.base.settings_groups import GROUPS

_HEAD: Final = """# Settings

Every setting of Waybill. Each is an environment variable; an empty one counts as unset, an unknown `WAYBILL_` variable
is refused. `ops config` shows the values in force on a host and where they come from, `ops config NAME` one of them.

This page is made by a command; don't edit it:

```sh
python3 -m ops config --page > ops/runbooks/settings.md
```

Read by: the kinds of processes that `ops status` names; `up` is the supervisor (`ops up`), `start` the first start, and
`all` every process of Waybill. Operators' commands read what they need. Secrets are marked and never shown.
"""
_TABLE: Final = "| setting | type | default | meaning | read by |\n|---|---|---|---|---|\n"


def page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(map(_section, GROUPS))


def _section(group: str) -> str:
    rows = [_row(one) for one in documented().values() if one.group == group]
    return f"\n## {group}\n\n{_TABLE}{''.join(rows)}"


def _row(one: SettingDoc) -> str:
    secret = " **Secret.**" if one.secret else ""
    default = one.default.replace("|", r"\|")
    meaning = one.meaning.replace("|", r"\|")
    return f"| `{one.variable}` | {one.kind} | `{default}` | {meaning}{secret} | {', '.join(one.readers)} |\n"
