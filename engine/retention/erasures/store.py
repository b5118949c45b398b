"""Read and write erasures."""

from engine.retention.erasures.types import ErasureRow
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
REQUEST = _SQL.rows("request_erasure", ErasureRow)
OF_ADDRESS = _SQL.rows("open_of_address", ErasureRow)
READ = _SQL.rows("read_erasure", ErasureRow)
LIST = _SQL.rows("list_erasures", ErasureRow)
OPEN = _SQL.rows("open_erasures", ErasureRow)
COUNT_OPEN = _SQL.command("count_open")
START = _SQL.command("start_erasure")
ADD = _SQL.command("add_erased")
NAME = _SQL.command("name_entries")
COMPLETE = _SQL.command("complete_erasure")
