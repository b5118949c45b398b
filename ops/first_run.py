"""First run in local mode: create an account, an API key and a verified domain for trying things out.

Every start in local mode also makes sure that a platform account exists.
"""

import json
from pathlib import Path
from typing import Any

from engine.base.operators import FIRST_OWNER
from engine.base.plans import Plan
from engine.base.settings import Settings
from engine.flows.accounts import platform_account
from ops import admin
from ops.state import write_private

FILE = "first-run.json"
DOMAIN = "hello.test"
DAILY_CAP = 100_000  # the first warm-up limit of new accounts, 50 a day, is too low for trying things out


async def ensure(settings: Settings, state: Path) -> dict[str, Any]:
    """Return the contents of `<state>/first-run.json` (mode 0600), created with its account on the first start."""
    file = state / FILE
    async with admin.opened(settings) as pool:
        await platform_account.ensure_local(pool, settings)
        if file.is_file():
            return dict(json.loads(file.read_text("utf-8")))
        account = await admin.create_account(
            pool, name="Local", email=FIRST_OWNER, plan=Plan.SCALE, daily_cap=DAILY_CAP
        )
        key = await admin.create_key(pool, settings, account=account["accountId"], name="First key", scopes=["all"])
        await admin.add_domain(pool, settings, account=account["accountId"], name=DOMAIN, verified=False)
        checked = await admin.check_domain(pool, settings, account=account["accountId"], name=DOMAIN)
    if checked is None or checked["status"] != "verified":
        raise RuntimeError(
            f"The local DNS responder did not verify {DOMAIN}: {checked}. Read log/dns.log in the state folder."
        )
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
