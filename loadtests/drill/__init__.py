"""`ops drill`: inject faults into a separate service while mail flows, then account for every message.

`catalogue` lists the drills. `running` starts a service, sends mail through it (`clients`) while faults are injected,
and compares the client's record with the database, the account log and the sink (`reconciliation`).
"""
