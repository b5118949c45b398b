"""Compare the events that a service has recorded with what the OpenAPI document says of webhooks' posts."""

import asyncio
from typing import Any

import asyncpg
import orjson
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from api.areas.webhooks.event_schemas import DETAILS, event_schema
from engine.base.settings import Settings
from engine.events.webhooks.rules import body
from ops import admin


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without room for properties that it does not describe."""
    found = dict(schema)
    if "properties" in schema:
        found["properties"] = {name: strict(one) for name, one in schema["properties"].items()}
        found["additionalProperties"] = False
    if "items" in schema:
        found["items"] = strict(schema["items"])
    return found


VALIDATORS = {str(kind): Draft202012Validator(strict(event_schema(kind, detail))) for kind, detail in DETAILS.items()}


async def undescribed(pool: asyncpg.Pool) -> list[str]:
    """Return what is wrong with the posts of the events that are stored: nothing if the document tells the truth."""
    rows = await pool.fetch(
        "SELECT id, seq, type, occurred_at, payload FROM events WHERE type = ANY ($1::text[]) AND payload IS NOT NULL",
        list(VALIDATORS),
    )
    problems = set()
    for row in rows:
        posted = orjson.loads(body(row["id"], row["seq"], row["occurred_at"], row["payload"]))
        problems |= {f"{row['type']}: {error.message}" for error in VALIDATORS[row["type"]].iter_errors(posted)}
    return sorted(problems)


def check(settings: Settings) -> None:
    """Fail if a service has recorded an event that its document does not describe. Call without a running loop."""

    async def found() -> list[str]:
        async with admin.opened(settings) as pool:
            return await undescribed(pool)

    problems = asyncio.run(found())
    assert not problems, problems[:20]
