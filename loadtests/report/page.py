"""Write the report as one self-contained HTML page: checks, figures, plots, settings."""

import base64
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from loadtests.bench.measure import SERVER_ROLES
from loadtests.report import figures

FILE: Final = "report.html"
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #2b2f36; background: #fff; margin: 2rem auto; max-width: 64rem;
       padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p.about { margin: .25rem 0 1.5rem; color: #59606b }
table { border-collapse: collapse } td, th { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: top }
th { font-weight: 600; border-bottom: 1px solid #c9cdd3 } td.n, th.n { text-align: right;
font-variant-numeric: tabular-nums }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem } .tile { border: 1px solid #d9dce1; border-radius: 6px;
padding: .5rem .9rem; min-width: 8.5rem } .tile b { display: block; font-size: 1.25rem } .tile span { color: #59606b;
font-size: .85rem }
.ok { color: #00704f; font-weight: 600 } .bad { color: #b3261e; font-weight: 600 }
img { max-width: 100%; height: auto; display: block; margin: 0 0 1rem } code { font-size: .9em }
"""


def write(found: Mapping[str, Any], drawn: Mapping[str, Path], folder: Path) -> Path:
    """Write `report.html` to the folder and return its path."""
    file = folder / FILE
    file.write_text(html(found, {title: picture.read_bytes() for title, picture in drawn.items()}), "utf-8")
    return file


def html(found: Mapping[str, Any], pictures: Mapping[str, bytes]) -> str:
    """Return the HTML of the page; `pictures` are PNG by title."""
    pace = f"{found['rate']:g} requests a second" if found["rate"] else "as fast as answers come"
    title = f"Load test: {found['scenario']}"
    parts = [
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(title)}</title>",
        f"<meta name=viewport content='width=device-width'><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p class=about>{escape(found['about'])}; {found['users']} users, {escape(pace)}, {found['seconds']:g} s</p>",
        _tiles(found),
        "<h2>Check</h2>",
        _table(
            ("", "what", "found"),
            [(_verdict(ok=one["ok"]), escape(one["what"]), escape(one["found"])) for one in found["checks"]],
            numbers=0,
        ),
        "<h2>Times in milliseconds</h2>",
        _table(
            ("", "count", "p50", "p95", "p99", "largest"),
            [tuple(escape(cell) for cell in row) for row in figures.rows(dict(found))],
            numbers=5,
        ),
    ]
    if found["cores_by_role"]:
        parts += ["<h2>CPU and memory</h2>", _roles(found)]
    for name, picture in pictures.items():
        text = base64.b64encode(picture).decode()
        parts.append(f"<h2>{escape(name)}</h2><img alt='{escape(name)}' src='data:image/png;base64,{text}'>")
    parts += [
        "<h2>Settings, versions, machine</h2>",
        _table(("", ""), _pairs(found), numbers=0),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _tiles(found: Mapping[str, Any]) -> str:
    tiles = [
        (f"{found['accepted_per_s']:,.0f}", "accepted a second"),
        (f"{found['accepted']:,}", "messages accepted"),
    ]
    if found["cores_by_role"] and "api" in found["cores_by_role"]:
        tiles += [
            (f"{found['drained_s']:g} s", "from the last send to the last arrival"),
            (f"{found['queue_peak']:,}", "deliveries in the queue at most"),
            (f"{found['oldest_peak_s']:g} s", "age of the oldest at most"),
            (f"{found['server_cpu_ms_per_message']:.2f} ms", "server CPU a message"),
            (f"{found['cost_in_signatures']:.1f}", "the same in RSA-2048 signatures"),
        ]
    if found["webhook_posts"]:
        tiles.append((f"{found['webhook_posts']:,}", "webhook posts"))
    inside = "".join(
        f"<div class=tile><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in tiles
    )
    return f"<div class=tiles>{inside}</div>"


def _roles(found: Mapping[str, Any]) -> str:
    """Render CPU and memory by role, with the service before Locust, sink and other processes."""
    rows = []
    for side, ours in (("service", True), ("load", False)):
        for role, cores in found["cores_by_role"].items():
            if (role in SERVER_ROLES) is ours:
                memory = found["memory_peak_mb_by_role"].get(role)
                each = found["cpu_ms_per_message_by_role"][role]
                shown = "–" if memory is None else f"{memory:,.0f}"
                rows.append((side, escape(role), f"{100 * cores:,.1f}", f"{each:.3f}", shown))
    titles = ("", "role", "% of a core while sending", "ms a message, draining included", "MiB at most")
    kind = f"<p class=about>Memory is {escape(found['memory_kind'])}, summed over a role's processes.</p>"
    return _table(titles, rows, numbers=3) + kind


def _pairs(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("service", str(found["service"])), ("accounts", str(found["accounts"]))]
    rows += [(f"setting {name}", value) for name, value in found["settings"].items()]
    rows += [(f"version of {name}", value) for name, value in found["versions"].items()]
    rows += [(str(name), str(value)) for name, value in found["machine"].items()]
    return [(escape(name), f"<code>{escape(value)}</code>") for name, value in rows]


def _verdict(*, ok: bool) -> str:
    return "<span class=ok>ok</span>" if ok else "<span class=bad>BAD</span>"


def _table(titles: Iterable[str], rows: Iterable[tuple[str, ...]], *, numbers: int) -> str:
    """Render a table; the last `numbers` columns are right-aligned. Cells are HTML."""
    heads = tuple(titles)
    first = len(heads) - numbers

    def cells(row: tuple[str, ...], kind: str) -> str:
        return "".join(
            f"<{kind}{' class=n' if place >= first else ''}>{cell}</{kind}>" for place, cell in enumerate(row)
        )

    lines = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    head = f"<tr>{cells(heads, 'th')}</tr>" if any(heads) else ""
    return f"<table>{head}{lines}</table>"
