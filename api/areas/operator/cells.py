"""`/v1/operator/cells`: the cells of the installation. The header `X-Waybill-Cell` chooses one for other operations."""

from typing import cast

from api.areas.operator.operation import OPERATORS
from api.areas.operator.schemas import CellList, CellRecord, CellStateName
from api.http.operation import Call, Operation
from engine.cells import claims
from engine.cells.overview import CellState, states


async def list_cells(call: Call) -> CellList:
    """Return all cells, with what each says about itself; none without a directory."""
    joined = await claims.directory()
    if joined is None:
        return CellList([])
    directory, own = joined
    return CellList([_record(one, own) for one in await states(directory, call.settings.pepper)])


def _record(one: CellState, own: str) -> CellRecord:
    cell = one.cell
    return CellRecord(
        name=cell.name,
        state=cast("CellStateName", cell.state),
        weight=cell.weight,
        placed=one.placed,
        own=cell.name == own,
        figures=one.figures,
    )


OPERATIONS = (
    Operation(
        "GET",
        "/v1/operator/cells",
        list_cells,
        "List the cells of the installation",
        OPERATORS,
        note="With `X-Waybill-Cell` a front passes any operation of operators to the cell of that name.",
    ),
)
