"""Postgres and Redis: connections, named queries, migrations, partitions, caches."""
