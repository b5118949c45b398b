"""`/v1/operator`: all operations of the operator's part."""

from api.areas.operator import accounts, cells, queue, reviews, shards, sites

OPERATIONS = (
    *shards.OPERATIONS,
    *queue.OPERATIONS,
    *sites.OPERATIONS,
    *accounts.OPERATIONS,
    *cells.OPERATIONS,
    *reviews.OPERATIONS,
)
