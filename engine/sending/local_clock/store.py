"""Read what is due."""

from engine.sending.local_clock.types import DueWork
from engine.store.queries import Queries

DUE_WORK = Queries.beside(__file__).rows("due_work", DueWork)
