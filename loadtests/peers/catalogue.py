"""The mail servers that `ops loadtest peers` compares with."""

from typing import Final

from loadtests.peers.haraka import HARAKA
from loadtests.peers.opensmtpd import OPENSMTPD
from loadtests.peers.postfix import POSTFIX_UNSIGNED, POSTFIX_WITH_OPENDKIM, POSTFIX_WITH_RSPAMD

PEERS: Final = {
    peer.name: peer for peer in (POSTFIX_WITH_OPENDKIM, POSTFIX_WITH_RSPAMD, POSTFIX_UNSIGNED, HARAKA, OPENSMTPD)
}
