"""The state of mail server addresses in one process: their order, and rests."""

from engine.mail.replies import Answer, Break, BreakKind, Phase, Reply
from mta.outbound.sites.remote_hosts import MAX_HOSTS, MAX_REST_S, REST_S, SILENT_S, HostKey, RemoteHosts

NOW = 1_000.0
FIRST, SECOND = HostKey("192.0.2.1", 25), HostKey("192.0.2.2", 25)
SILENCE = Answer(Phase.GREETING, Break(BreakKind.TIMEOUT, "no complete reply"))
BUSY = Answer(Phase.GREETING, Reply(421, "4.3.2 busy", "4.3.2"))


def test_a_silent_address_is_asked_behind_the_others() -> None:
    hosts = RemoteHosts()
    assert hosts.first([FIRST, SECOND], NOW) == FIRST
    hosts.failed(FIRST, SILENCE, NOW)
    assert hosts.first([FIRST, SECOND], NOW) == SECOND
    assert hosts.first([FIRST, SECOND], NOW + SILENT_S + 1) == FIRST


def test_only_where_every_address_rests_nobody_is_asked() -> None:
    hosts = RemoteHosts()
    hosts.failed(FIRST, SILENCE, NOW)
    assert hosts.resting([FIRST, SECOND], NOW) is None
    hosts.failed(SECOND, BUSY, NOW)
    rest = hosts.resting([FIRST, SECOND], NOW)
    assert rest is not None
    assert rest.because in (SILENCE, BUSY)
    assert hosts.first([FIRST, SECOND], NOW) is None
    assert hosts.resting([FIRST, SECOND], NOW + 1.3 * REST_S) is None
    assert hosts.resting([], NOW) is None


def test_a_host_rests_longer_each_time_until_it_greets() -> None:
    hosts, at, rests = RemoteHosts(), NOW, []
    for _ in range(8):
        hosts.failed(FIRST, SILENCE, at)
        rests.append(hosts.of(FIRST).rest_until - at)
        at += 1_000
    assert 0.8 * REST_S <= rests[0] <= 1.2 * REST_S
    assert 1.6 * REST_S <= rests[1] <= 2.4 * REST_S
    assert max(rests) <= 1.2 * MAX_REST_S
    hosts.opened(FIRST)
    assert hosts.resting([FIRST], at) is None
    assert hosts.of(FIRST).failures == 0


def test_a_failure_beside_connections_that_stand_is_no_rest() -> None:
    hosts = RemoteHosts()
    hosts.opened(FIRST)
    hosts.answered(FIRST, NOW)
    hosts.failed(FIRST, BUSY, NOW)
    assert hosts.resting([FIRST], NOW) is None
    assert not hosts.comes_last(FIRST, NOW)
    assert hosts.of(FIRST).proven_until > NOW
    hosts.closed(FIRST)
    hosts.failed(FIRST, BUSY, NOW)
    assert hosts.resting([FIRST], NOW) is not None
    assert hosts.of(FIRST).proven_until < NOW


def test_a_host_that_lets_a_transaction_time_out_is_proven_no_more() -> None:
    hosts = RemoteHosts()
    hosts.answered(FIRST, NOW)
    hosts.stalled(FIRST)
    assert hosts.of(FIRST).proven_until < NOW


def test_ports_and_source_addresses_are_hosts_of_their_own() -> None:
    hosts = RemoteHosts()
    hosts.failed(FIRST, SILENCE, NOW)
    assert hosts.resting([FIRST._replace(port=26)], NOW) is None
    assert hosts.resting([FIRST._replace(source_ip="192.0.2.9")], NOW) is None


def test_what_is_remembered_is_bounded_and_the_longest_unused_is_forgotten() -> None:
    hosts = RemoteHosts()
    for number in range(MAX_HOSTS + 1):
        hosts.failed(HostKey(f"ip{number}", 25), SILENCE, NOW)
        if number == 1:
            hosts.opened(HostKey("ip0", 25))
    assert len(hosts._hosts) == MAX_HOSTS
    assert HostKey("ip1", 25) not in hosts._hosts
