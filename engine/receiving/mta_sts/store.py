"""Read and write hosted MTA-STS policies."""

from engine.receiving.mta_sts.types import HostedPolicyRow, ServedPolicy
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_policies", HostedPolicyRow)
READ = _SQL.rows("read_policy", HostedPolicyRow)
CLAIM_DUE = _SQL.rows("claim_due_policies", HostedPolicyRow)
SERVED = _SQL.rows("served_policy", ServedPolicy)
FINDINGS = _SQL.command("policy_findings")
SAVE = _SQL.command("save_policy")
SAVE_FINDINGS = _SQL.command("save_findings")
