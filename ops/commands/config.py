"""`ops config`: the settings, their values and their reference page (ops/runbooks/settings.md)."""

from typing import Any, Final

import click

from engine.base.settings import PREFIX, shown, unknown_setting
from engine.base.settings_docs import SettingDoc, documented
from engine.base.settings_groups import GROUPS
from ops.commands.base import as_json, fail, loaded, print_json, reported, show, table

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


@click.command()
@click.argument("name", required=False, help="Setting to show in full, such as WAYBILL_API_PORT or api_port.")
@click.option("--page", is_flag=True, help="Print the reference page of all settings (ops/runbooks/settings.md).")
@as_json
@reported
def config(*, name: str | None, page: bool, as_json: bool) -> None:
    """List all settings by group: value (secrets masked), origin of the value, and meaning.

    Settings are environment variables; ops/runbooks/settings.md describes all of them.
    """
    if page:
        click.echo(settings_page(), nl=False)
        return
    docs = {one.variable: one for one in sorted(documented().values(), key=lambda one: GROUPS.index(one.group))}
    order = list(docs)
    rows = [{"name": field, "value": value, "from": origin} for field, value, origin in shown(loaded())]
    rows.sort(key=lambda row: order.index(row["name"]))
    if name is not None:
        wanted = name.upper() if name.upper().startswith(PREFIX) else PREFIX + name.upper()
        rows = [row for row in rows if row["name"] == wanted]
        if not rows:
            fail(unknown_setting(wanted))
    full_rows = [row | _documentation(docs[row["name"]]) for row in rows]
    if as_json:
        print_json(full_rows if name is None else full_rows[0])
    elif name is not None:
        show(full_rows[0], as_json=False)
    else:
        table(full_rows, ["group", "name", "value", "from", "meaning"])


def _documentation(one: SettingDoc) -> dict[str, Any]:
    return {
        "group": one.group,
        "type": one.kind,
        "default": one.default,
        "meaning": one.meaning,
        "readBy": list(one.readers),
    }


def settings_page() -> str:
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
