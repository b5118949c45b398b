"""Read and write the sends of agents that wait for approval."""

from engine.sending.agent_sends.types import AgentSendRow
from engine.store.queries import Queries

_SQL = Queries.beside(__file__)
LIST = _SQL.rows("list_agent_sends", AgentSendRow)
READ = _SQL.rows("read_agent_send", AgentSendRow)
SAME = _SQL.rows("same_agent_send", AgentSendRow)
COUNT_PENDING = _SQL.command("count_pending")
INSERT = _SQL.rows("insert_agent_send", AgentSendRow)
CLAIM = _SQL.rows("claim_agent_send", AgentSendRow)
REVOKED = _SQL.command("key_is_revoked")
RELEASE = _SQL.command("release_agent_send")
FINISH = _SQL.rows("finish_agent_send", AgentSendRow)
DECLINE = _SQL.rows("decline_agent_send", AgentSendRow)
UNTOLD = _SQL.command("untold_accounts")
MARK_TOLD = _SQL.command("mark_told")
FORGET_EXPIRED = _SQL.command("forget_expired")
PURGE = _SQL.command("purge_agent_sends")
