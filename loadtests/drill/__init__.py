"""`ops drill`: inject faults into a separate service while mail flows, then account for every message.

`catalogue` lists the drills. Each starts a service (`service`), sends mail through it (`send_client`), injects faults,
and compares the client's record with the database, the account log and the sink (`reconciliation`).
"""
