"""Starts in local mode: the first makes an account, a key and a verified domain to try everything with.

Every one sees to it that the service has an account for its own mail.
"""

import json
from pathlib import Path
from typing import Any

from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.flows.accounts import platform_account
from ops import admin
from ops.state import write_private

FILE = "first-run.json"
DOMAIN = "hello.test"
EMAIL = "owner@hello.test"
DAILY_CAP = 100_000  # the ladder's first rung, 50 a day, would end a trial early


async def ensure(settings: Settings, state: Path) -> dict[str, Any]:
    """What the first start made, made now if this is it; kept in `<state>/first-run.json`, mode 0600."""
    file = state / FILE
    async with admin.opened(settings) as pool:
        await platform_account.ensure_local(pool, settings)
        if file.is_file():
            return dict(json.loads(file.read_text("utf-8")))
        account = await admin.create_account(pool, name="Local", email=EMAIL, plan=Plan.SCALE, daily_cap=DAILY_CAP)
        key = await admin.create_key(pool, settings, account=account["accountId"], name="First key", scopes=["all"])
        await admin.add_domain(pool, settings, account=account["accountId"], name=DOMAIN, verified=False)
        checked = await admin.check_domain(pool, settings, account=account["accountId"], name=DOMAIN)
    if checked is None or checked["status"] != "verified":
        raise RuntimeError(f"the local DNS responder did not confirm {DOMAIN}: {checked}")
    made = {
        "baseUrl": f"http://{settings.api_host}:{settings.api_port}",
        "accountId": account["accountId"],
        "email": account["email"],
        "password": account["password"],
        "apiKey": key["apiKey"],
        "domain": DOMAIN,
    }
    write_private(file, json.dumps(made, indent=2) + "\n")
    return made
