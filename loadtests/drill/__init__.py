"""`ops drill`: parts of a service die, hang or lie while mail is under way, and every message is counted.

`catalogue` lists the drills; each starts a service of its own (`service`), sends through it (`sends`), harms it, and
compares what the client was told with the database, the account's log and what arrived (`verdict`).
"""
