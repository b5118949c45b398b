"""Checks of the directory and the cells, on fronts and in cells."""

import aiohttp

from engine.base.settings import Settings, variable
from engine.base.version import COMMAND
from engine.cells.directory import Directory
from engine.cells.overview import figures_of
from engine.store.database_errors import DatabaseError
from engine.store.migrate import MigrationError
from ops.doctor.finding import DoctorFinding, bad, good


async def cells(settings: Settings) -> list[DoctorFinding]:
    """Check that the directory can be read and that every cell answers internal questions."""
    if settings.directory_url is None:
        return []
    try:
        directory = await Directory.open(settings.directory_url, name="doctor", largest=1)
    except (DatabaseError, MigrationError) as error:
        mend = f"Check {variable('directory_url')}; `{COMMAND} cells migrate` makes its tables."
        return [bad("directory", f"can't be used ({error})", mend)]
    try:
        known = await directory.cells()
    finally:
        await directory.close()
    if settings.cell is not None and settings.cell not in {one.name for one in known}:
        return [bad("directory", f"has no cell {settings.cell}", f"Add it with `{COMMAND} cells add`.")]
    async with aiohttp.ClientSession(trust_env=False) as http:
        silent = [one.name for one in known if await figures_of(http, one, settings.pepper) is None]
    if silent:
        mend = "Check their API, and that all cells and fronts have the same key pepper."
        return [bad("directory", f"no answer from {', '.join(silent)}", mend)]
    return [good("directory", f"{len(known)} cells, all answer")]
