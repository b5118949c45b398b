"""`ops backup` and `ops restore`: everything durable into a folder, and out of it into an empty database.

Rows are copied as text by the database itself, out of one snapshot, so that sending goes on meanwhile and any version
of PostgreSQL reads what another has written. The schema is not copied: migrations make it.
"""
