"""The services of one API process; every handler gets them with its call."""

import asyncpg
from msgspec import Struct

from engine.accounts.audit.verifier import Verifier
from engine.accounts.billing.configuration import Billing
from engine.accounts.request_log.recorder import RequestRecorder
from engine.base.settings import Settings
from engine.codes.verifications.send import CodeSender
from engine.delivery.hints import Hints
from engine.events.tails.hub import Tails
from engine.people.api_keys.key_auth import Keys
from engine.people.identity.provider import IdentityProvider
from engine.people.sessions.session_auth import SessionAuth
from engine.receiving.receivers.service import ReceiverBoard
from engine.sending.accept import Acceptor
from engine.store import redis as redis_store
from engine.store.passwords import Passwords
from engine.store.rate_limits import RateLimiter
from engine.store.replicas import Replicas
from engine.store.resolver import Resolver


class ApiServices(Struct):
    """The parts of the service that handlers call; one instance per process."""

    pool: asyncpg.Pool
    redis: redis_store.RedisClient
    acceptor: Acceptor
    keys: Keys
    sessions: SessionAuth
    passwords: Passwords
    limits: RateLimiter
    requests: RequestRecorder
    hints: Hints
    codes: CodeSender
    tails: Tails
    verifier: Verifier
    provider: IdentityProvider | None
    billing: Billing
    resolver: Resolver
    receivers: ReceiverBoard
    settings: Settings
    replicas: Replicas | None = None  # with `database_read_url` only
