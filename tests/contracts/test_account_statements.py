"""The statements of a message's way name the account, message or shard of every row that they touch.

PostgreSQL could then be distributed by account: a statement that names nothing would be sent to every node. Those that
do are listed with their reason in `spanning_statements.toml`; `ops/runbooks/scale.md` says what follows from the list.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import sqlglot
from msgspec import Struct
from sqlglot import exp

from engine.store.queries import SessionFunction
from tests.contracts.test_queries import QUERIES, ROOT, name_of
from tests.retention.test_erase import NOBODYS

LISTED = Path(__file__).with_name("spanning_statements.toml")
WAY = (
    "engine/delivery/holds.sql",
    "engine/delivery/queue.sql",
    "engine/events/webhooks/queries.sql",
    "engine/ledger/heads.sql",
    "engine/ledger/log.sql",
    "engine/ledger/quota_usage.sql",
    "engine/receiving/inbound_routes/forward.sql",
    "engine/receiving/receive.sql",
    "engine/receiving/recipients.sql",
    "engine/receiving/reports/late_bounce.sql",
    "engine/sending/accept.sql",
    "engine/sending/broadcast_copies.sql",
    "engine/sending/cancel_schedule.sql",
    "engine/sending/complaint.sql",
    "engine/sending/forget_content.sql",
    "engine/sending/release.sql",
    "engine/sending/reschedule.sql",
    "engine/sending/resend.sql",
    "engine/sending/sender_checks.sql",
    "engine/sending/settle.sql",
    "engine/sending/unsubscribes/service.sql",
)
# Columns that name whose a row is, the strongest first. A message, an endpoint or a broadcast belongs to one account.
OWNERS = (
    "account_id", "shard", "message_id", "webhook_id", "event_id", "broadcast_id", "contact_id", "address_id",
    "domain_id", "user_id",
)  # fmt: skip
OWN_ID = ("accounts", "messages", "webhooks", "events", "domains", "inbound_messages", "inbound_routes", "broadcasts",
          "unsubscribe_links", "contacts", "report_mails", "inbound_addresses", "inbound_bytes")  # fmt: skip

_DO_NOTHING = re.compile(r"\bON CONFLICT\b[^;]*?\bDO NOTHING\b")
_INTO = re.compile(r"\bINTO\s+[a-z_]+(?:\s*,\s*[a-z_]+)*\s*(?=FROM\b|;|$)")


def statements(sql: str, *, is_function: bool) -> list[str]:
    """Return the statements of a query; of a function those of its body, without control flow."""
    if not is_function:
        return [sql]
    body = sql.split("$function$")[1]
    pieces = re.sub(r"--[^\n]*", "", body.split("BEGIN", 1)[1]).split(";")
    texts = [re.sub(r"^\s*IF\b.*?\bTHEN\b", "", piece, flags=re.DOTALL) for piece in pieces]
    return [_INTO.sub("", text) for text in texts if re.match(r"\s*(?:WITH|SELECT|INSERT|UPDATE|DELETE)\b", text)]


class Place(Struct, eq=False):
    """One mention of a table, with the columns that are known to be given."""

    table: str
    alias: str
    scope: exp.Expr  # the statement in whose FROM it stands
    given: set[str]

    def owner(self) -> str | None:
        """Return the strongest given column that names whose rows are touched."""
        names = (*OWNERS, "id") if self.table in OWN_ID else OWNERS
        return next((name for name in names if name in self.given), None)


def places_of(tree: exp.Expr, columns: dict[str, frozenset[str]]) -> list[Place]:
    """Return every mention of a stored table in a statement."""
    made_here = {cte.alias for cte in tree.find_all(exp.CTE)}
    found = []
    for table in tree.find_all(exp.Table):
        if table.name in columns and table.name not in made_here:
            scope = table.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
            assert scope is not None
            found.append(Place(table.name, table.alias_or_name, scope, set()))
    return found


def place_of(column: exp.Column, places: list[Place], columns: dict[str, frozenset[str]]) -> Place | None:
    """Return the mention, in its own statement or one around it, that a column belongs to. None: of no stored table."""
    scope: exp.Expr | None = column
    while scope is not None:
        scope = scope.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
        for place in places:
            if (
                place.scope is scope
                and (column.table or place.alias) == place.alias
                and column.name in columns[place.table]
            ):
                return place
    return None


def give_inserted(tree: exp.Expr, places: list[Place]) -> None:
    """An INSERT that names a column gives it."""
    for insert in tree.find_all(exp.Insert):
        target = insert.this
        for place in places:
            if place.scope is insert and isinstance(target, exp.Schema) and place.table == target.this.name:
                place.given |= {column.name for column in target.expressions}


def give_compared(tree: exp.Expr, places: list[Place], columns: dict[str, frozenset[str]]) -> None:
    """An equality gives a column, if its other side is a parameter, a made row, or a column that is given."""
    pairs = list(comparisons(tree))
    changed = True
    while changed:
        changed = False
        for left, right in pairs:
            place = place_of(left, places, columns)
            if place is None or left.name in place.given:
                continue
            sources = [(one, place_of(one, places, columns)) for one in right.find_all(exp.Column)]
            if all(
                other is None or other.owner() or one.name in other.given
                for one, other in sources
                if not _inside(one, right)
            ):
                place.given.add(left.name)
                changed = True


def comparisons(tree: exp.Expr) -> Iterator[tuple[exp.Column, exp.Expr]]:
    """Yield the sides of all equalities that restrict rows, both ways."""
    for equality in tree.find_all(exp.EQ, exp.In):
        if not _restricts(equality):
            continue
        if isinstance(equality, exp.In):
            if isinstance(equality.this, exp.Column):
                yield equality.this, equality.args.get("query") or exp.Tuple(expressions=equality.expressions)
            continue
        for one, other in ((equality.this, equality.expression), (equality.expression, equality.this)):
            if isinstance(one, exp.Column):
                yield one, other


def _inside(column: exp.Column, side: exp.Expr) -> bool:
    """Tell whether a column stands in a subquery of the side, which is judged for itself."""
    above = column.parent
    while above is not None and above is not side.parent:
        if isinstance(above, exp.Select):
            return True
        above = above.parent
    return False


def _restricts(node: exp.Expr) -> bool:
    """An equality restricts rows if it stands in WHERE or ON, under AND alone."""
    above = node.parent
    while isinstance(above, exp.Paren | exp.And):
        above = above.parent
    return isinstance(above, exp.Where | exp.Join)


async def columns_of(pool: asyncpg.Pool) -> dict[str, frozenset[str]]:
    """Return the columns of every table that holds rows of accounts."""
    rows = await pool.fetch(
        """SELECT c.relname, array_agg(a.attname::text) AS names
           FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
           WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
             AND a.attnum > 0 AND NOT a.attisdropped GROUP BY c.relname"""
    )
    return {row["relname"]: frozenset(row["names"]) for row in rows if row["relname"] not in NOBODYS}


def touched(sql: str, columns: dict[str, frozenset[str]]) -> list[Place]:
    """Return the tables that a statement touches, with what it gives of each."""
    tree = sqlglot.parse_one(_DO_NOTHING.sub("", sql), read="postgres")
    places = places_of(tree, columns)
    give_inserted(tree, places)
    give_compared(tree, places, columns)
    return places


async def test_every_statement_names_whose_rows_it_touches_or_is_listed(pool: asyncpg.Pool) -> None:
    columns = await columns_of(pool)
    assert all((ROOT / path).is_file() for path in WAY)
    spanning: dict[str, set[str]] = {}
    for query in QUERIES:
        if name_of(query).split(":")[0] in WAY:
            for sql in statements(query.sql, is_function=isinstance(query, SessionFunction)):
                for place in touched(sql, columns):
                    if place.owner() is None:
                        spanning.setdefault(name_of(query), set()).add(place.table)

    listed = tomllib.loads(LISTED.read_text())["statements"]
    assert spanning == {name: set(tables) for entry in listed for name, tables in entry["touch"].items()}
    assert all(entry["reason"] for entry in listed)


async def test_unique_keys_hold_within_an_account_or_are_listed(pool: asyncpg.Pool) -> None:
    columns = await columns_of(pool)
    rows = await pool.fetch(
        """SELECT i.indrelid::regclass::text AS name, ARRAY(
               SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k (n, place)
               JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n ORDER BY k.place) AS key
           FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
           WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace AND NOT c.relispartition"""
    )
    spanning = {
        f"{row['name']} ({', '.join(row['key'])})"
        for row in rows
        if row["name"] in columns and row["key"] != ["id"] and not set(row["key"]) & set(OWNERS)
    }

    assert spanning == set(tomllib.loads(LISTED.read_text())["unique_keys"])


async def test_no_sequence_numbers_the_rows_of_several_accounts(pool: asyncpg.Pool) -> None:
    assert await pool.fetchval("SELECT count(*) FROM pg_class WHERE relkind = 'S'") == 0


ROWS = {"queue": frozenset({"message_id", "account_id", "shard", "due_at"}), "accounts": frozenset({"id", "plan"})}


@pytest.mark.parametrize(
    ("sql", "owners"),
    [
        ("SELECT due_at FROM queue WHERE account_id = $1", ["account_id"]),
        ("SELECT due_at FROM queue WHERE shard = ANY ($1) AND due_at < now()", ["shard"]),
        (
            "UPDATE queue q SET due_at = n.at FROM unnest($1, $2) AS n (id, at) WHERE q.message_id = n.id",
            ["message_id"],
        ),
        ("INSERT INTO queue (message_id, account_id) SELECT n.* FROM unnest($1, $2) AS n (a, b)", ["account_id"]),
        ("SELECT 1 FROM queue q JOIN accounts a ON a.id = q.account_id WHERE q.shard = $1", ["account_id", "id"]),
        ("SELECT due_at FROM queue WHERE due_at < now()", [None]),
        ("SELECT due_at FROM queue WHERE account_id = $1 OR due_at < now()", [None]),
        ("SELECT due_at FROM queue WHERE NOT account_id = $1", [None]),
        ("SELECT 1 FROM queue q JOIN accounts a ON a.id = q.account_id", [None, None]),
    ],
)
def test_what_a_statement_names(sql: str, owners: list[str | None]) -> None:
    assert [place.owner() for place in touched(sql, ROWS)] == owners
