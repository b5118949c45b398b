"""Check of `ops doctor` that everybody whom the setting names as an operator is one."""

import asyncpg

from engine.base.operators import operators as named_by
from engine.base.settings import Settings, variable
from engine.people.people import store as people
from ops.doctor.finding import DoctorFinding, bad, good

CHECK = "operators"


async def operators(connection: asyncpg.Connection, settings: Settings) -> DoctorFinding:
    """Name the operators' addresses without a person, and the people whom `ops person operator` has not confirmed."""
    named = sorted(named_by(settings))
    if not named:
        return good(CHECK, "none; the console shows nobody the operator's pages")
    known = {one.email: one for one in await people.OPERATORS_NAMED.fetch(connection, named)}
    strangers = [address for address in named if address not in known]
    if strangers:
        mend = (
            f"Anybody can sign up with an address that has no person. Remove it from {variable('operators')}, or "
            "create its person with `ops account create --email ADDRESS`."
        )
        return bad(CHECK, f"no person has the address {', '.join(strangers)}", mend)
    waiting = [one.email for one in known.values() if not (one.is_operator and one.email_verified)]
    if waiting:
        mend = "Confirm each of them with `ops person operator ADDRESS`. Until then, the address gives no rights."
        return bad(CHECK, f"not confirmed: {', '.join(sorted(waiting))}", mend)
    return good(CHECK, f"{len(named)} confirmed")
