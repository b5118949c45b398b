"""Backup and restore: all durable data into a folder, and from there into an empty database.

COPY writes rows as text from one snapshot, so mail flows meanwhile and another version of PostgreSQL can read them.
Migrations create the schema; it is not part of a backup.
"""
