"""Check which stored secrets depend on the previous key pepper, and which none of this host's peppers opens."""

from engine.base.settings import Settings, variable
from engine.retention import reseal
from engine.store.queries import Source
from ops.doctor.finding import DoctorFinding, bad, good

NAME = "stored secrets"


async def peppers(connection: Source, settings: Settings) -> DoctorFinding:
    """Check that the peppers of this host open every stored secret."""
    if settings.key_pepper is None:
        return good(NAME, "not checked: there is no pepper yet")
    counts = await reseal.count(connection, settings.pepper)
    unreadable = _listed({one.what: one.unreadable for one in counts})
    if unreadable:
        mend = (
            f"Set the pepper that they were made under as {variable('key_pepper_previous')} (or restore"
            f" {settings.state}/pepper-previous) and restart. If it is lost, revoke these API keys and set up the rest"
            " again."
        )
        return bad(NAME, f"made under another pepper and unreadable: {unreadable}", mend)
    previous = _listed({one.what: one.previous for one in counts})
    if previous:
        return good(NAME, f"all readable; still under the previous pepper: {previous}")
    return good(NAME, "all under the present pepper")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{what} ({number:,})" for what, number in counts.items() if number)
