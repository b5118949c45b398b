"""Declare every setting of the service with its default and documentation: one Struct.

The variable of a setting is `WAYBILL_` and its field name in capitals.
"""

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal

from msgspec import Struct

from engine.base.secrets import Pepper
from engine.base.settings.values import BlocklistZone, HostPort, SocketAddress, SourceIp

MEBIBYTE = 1024 * 1024
MIN_DISK_BYTES = 512 * MEBIBYTE  # free, below which the API is not ready
PROCESSES = ("api", "relay", "mx", "mta", "worker")
FRONT = "front"  # alone on its hosts
# Masked wherever settings are shown.
SECRETS = frozenset(
    {
        "key_pepper", "key_pepper_previous", "database_url", "database_read_url", "directory_url", "redis_url",
        "idp_client_secret", "payprov_secret", "stripe_key", "stripe_webhook_secret",
    }
)  # fmt: skip


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one process. Times are in seconds, sizes in bytes, ports are TCP port numbers.

    The docstring under each field is its documentation everywhere (`engine.base.settings_docs`): first the processes
    that read the setting, as `ops status` names their kinds (`up` is the supervisor, `start` the first start), then its
    meaning.
    """

    state: Path = Path(".state")
    """all: Folder for everything that this host keeps: embedded servers, pepper, logs, the local sink."""
    processes: tuple[str, ...] = PROCESSES
    """up: Kinds of processes that run on this host, of `api`, `relay`, `mx`, `mta` and `worker`; or `front` alone,
    which passes requests to several cells."""
    profile: Literal["auto", "small", "full"] = "auto"
    """up: `full` runs a process for each part, `small` two: the API with one worker, and one process for all other
    parts, with servers that use little memory; `api_workers`, `mta_workers` and the number of relay and mx processes
    above 1 have no effect there. `auto` is `small` in local mode on a host that runs
    the whole service, else `full`."""
    durable: bool = True
    """up: Whether the embedded PostgreSQL and Valkey wait for their disk (fsync). false, in local mode only: faster
    tests, but a power failure or a full stop of the machine can destroy all data."""
    database_url: str | None = None
    """all: URL of PostgreSQL, `postgresql://…`; may name several hosts; unset: an embedded server under the state
    folder."""
    database_read_url: str | None = None
    """api, relay: URL of one or more streaming replicas of that PostgreSQL, each named itself; lists, searches,
    statistics and exports are read there. Unset: everything is read from the primary."""
    read_lag_s: float = 5.0
    """api, relay: Maximum time by which a replica may lag; one that lags more gets no reads."""
    redis_url: str | None = None
    """all: URL of Redis or Valkey, `redis://…`, `rediss://…`, `redis+sentinel://…`, `redis+cluster://…` or `unix://…`;
    unset: an embedded server under the state folder."""
    directory_url: str | None = None
    """front, api, worker: URL of the PostgreSQL database that is the directory of several cells; unset: this
    installation is the only one."""
    cell: str | None = None
    """api, worker: Name of this installation in the directory; needed with `WAYBILL_DIRECTORY_URL`, except on
    fronts."""
    api_host: str = "127.0.0.1"
    """api, front, worker: Address that the HTTP API and the metrics listen on."""
    port_base: int | None = None
    """all: First of 7 ports in a row for this instance's servers, so that a second one with another `state` runs on the
    same machine: API, submission with STARTTLS and with TLS, incoming mail, metrics, local sink, local DNS. A port that
    is set itself stays; unset: the ports' own defaults."""
    api_port: int = 8080
    """api, front: Port of the HTTP API."""
    submission_host: str = "127.0.0.1"
    """front, relay: Address that SMTP submission listens on."""
    submission_port: int = 2587
    """front, relay: Port of SMTP submission with STARTTLS; in local mode also without, see WAYBILL_SUBMISSION_OPEN."""
    submission_tls_port: int = 2465
    """front, relay: Port of SMTP submission with TLS from the first octet."""
    submission_open: bool | None = None
    """relay: Accept mail without TLS and login on the submission port from programs on this machine, over loopback, for
    the account of the first run; STARTTLS is then not offered to them. Refused in live mode; unset: in local mode."""
    mx_host: str = "127.0.0.1"
    """front, mx: Address that the server for incoming mail listens on."""
    mx_port: int = 2525
    """front, mx: Port of the server for incoming mail. Set it to 25 for mail from the internet, or forward port 25 to
    it."""
    policy_port: int = 443
    """api, worker: Port at which the MTA-STS policy hosts of customers' domains are checked for a certificate."""
    acme_directory: str | None = None
    """worker: URL of the ACME directory (RFC 8555) of the authority that issues certificates for MTA-STS policy hosts,
    such as https://acme-v02.api.letsencrypt.org/directory; unset: a proxy in front has them. Setting it accepts the
    authority's terms."""
    acme_email: str | None = None
    """worker: Address that the authority may write to."""
    acme_authorities: Path | None = None
    """worker: PEM file of the certificate authorities to trust when talking to the ACME server; unset: the system's."""
    policy_tls_port: int | None = None
    """mx: Port on which MTA-STS policy hosts are served over HTTPS with the certificates got by ACME; unset: a proxy in
    front serves them."""
    policy_http_port: int | None = None
    """mx: Port on which policy hosts answer the challenges of ACME over plain HTTP; the authority asks port 80. Unset:
    a proxy in front passes `/.well-known/acme-challenge/` on to the API."""
    metrics_port: int = 9090
    """worker, metrics: Port of the Prometheus metrics of all processes of this host."""
    sink_port: int = 2600
    """mta, sink: Port of the local SMTP server that receives all mail in local mode."""
    dns_port: int = 2653
    """dns, up: Port of the local DNS responder in local mode."""
    api_workers: int = 1
    """up: Number of API worker processes on this host."""
    mta_workers: int = 2
    """up: Number of mta processes on this host."""
    relay_workers: int = 1
    """up: Number of relay processes on this host; 0: no SMTP submission."""
    mx_workers: int = 2
    """front, up, mta: Number of mx processes on this host; 0, the same on all hosts: the service accepts no mail, and
    mail to domains whose MX is this host bounces."""
    delivery: Literal["local", "live"] = "local"
    """all: `local` delivers all mail to the sink on this machine, `live` to the recipients' mail servers."""
    dns_servers: tuple[HostPort, ...] = ()
    """api, mx, mta, worker: Name servers to query, as host:port; unset: those of the system in live mode, the local DNS
    responder in local mode."""
    dnssec_trusted: bool = False
    """mta: Set to true if the name servers validate DNSSEC and the path to them is secure; DANE is used only then."""
    tls_authorities: Path | None = None
    """mta: PEM file of the certificate authorities that may sign the certificates of mail servers; unset: the
    system's."""
    system_from: str | None = None
    """api, worker: Sender of the service's own mail, `Name <address>` or an address alone; unset: the one that `ops
    platform set` stored, else no-reply@ the mail host."""
    tls_report_from: str | None = None
    """worker: Sender of TLS reports (RFC 8460), in a verified domain; unset: no reports are sent."""
    smtp_port: int = 25
    """mta: Port of remote mail servers in live mode."""
    mail_host: str = "mail.waybill.test"
    """api, front, relay, mx, mta, worker: Name of this mail service: in EHLO, in return addresses and in the DNS
    records that customers publish; in live mode it must resolve to this host and back."""
    source_ips: tuple[SourceIp, ...] = ()
    """mta, worker: Local addresses to send mail from, each with an optional EHLO name after `=`; unset: the system
    chooses."""
    public_url: str = "http://127.0.0.1:8080"
    """api, front, worker: URL of the API as clients and browsers see it, for links in mail, cookies and passkeys;
    unset: http://127.0.0.1 with the API port."""
    security_contact: str | None = None
    """api: Where people report vulnerabilities of this installation, an email address or an https:// URL; served at
    `/.well-known/security.txt`; unset: that path answers 404."""
    status_page: bool = False
    """api, worker: Serve a public status page at `/status` and `/status.json`, and record its history."""
    key_pepper: str | None = None
    """api, front, relay, mx, mta, worker, dns: Secret with which API keys and sessions are hashed and DKIM keys
    encrypted, the same on all hosts; unset: generated on the first start and stored in the state folder."""
    key_pepper_previous: str | None = None
    """api, front, relay, mx, mta, worker, dns: The pepper before a change, accepted beside WAYBILL_KEY_PEPPER and
    used for nothing new; unset: with a generated pepper, the file `pepper-previous` in the state folder, if there is
    one."""
    allow_private_mx: bool = False
    """mta, worker: Allow delivery to private and loopback addresses; `up` turns this on in local mode."""
    allow_private_webhooks: bool | None = None
    """api, worker: Allow webhook posts to private and loopback addresses; unset: in local mode, while the API listens
    on loopback only."""
    platform_daily_ceiling: int = 1_000_000
    """api, relay, worker: Maximum number of messages that all accounts together may send in a day (UTC)."""
    max_message_bytes: int = 40 * MEBIBYTE
    """api, front, relay: Maximum size of a composed message."""
    max_request_bytes: int = 60 * MEBIBYTE
    """api, front: Maximum size of the request body of a single send: base64 and JSON make it larger than the
    message."""
    max_inflight_bytes: int = 256 * MEBIBYTE
    """api, front, relay: Memory that one process may use for request bodies and messages that it is receiving; requests
    without credentials get an eighth of it."""
    body_deadline_s: float = 60.0
    """api, front: Time within which a request body must arrive."""
    body_min_bytes_per_s: int = 500
    """api, front, relay, mx: Minimum rate at which a body must arrive in every window of 5 s, beside the deadline
    (Postfix smtpd_min_data_rate)."""
    request_rate: int = 0
    """api, relay: Requests per second allowed for every API key; 0: the limit of its plan."""
    unauthenticated_rate: int = 10
    """api: Requests per second allowed for one network (an IPv4 address or an IPv6 /64) without a key or session."""
    sign_in_rate: int = 5
    """api: Attempts per minute to sign in, to sign up or to reset a password, per network and per email address."""
    shards: int = 256
    """all: Number of parts that the queue is divided into, the same on all hosts; chosen before the first start."""
    lease_s: float = 6.0
    """mta: Time for which an mta process owns its shards without renewing the lease; after a crash others take over
    when it ends."""
    shard_rules: Literal["auto", "manual"] = "auto"
    """worker: `auto` splits hot domains and moves shards by load; `manual` leaves both to `ops shards`."""
    split_rate: float = 50.0
    """worker: Messages per second to one recipient domain from which it is split, if `split_share` is reached too."""
    split_share: float = 0.2
    """worker: Share of all mail (0 to 1) from which a recipient domain is split, if `split_rate` is reached too."""
    split_after_s: float = 60.0
    """worker: Time for which a domain must stay above both limits before it is split."""
    merge_after_s: float = 900.0
    """worker: Time below half of either limit after which a split domain is merged."""
    balance_rate: float = 20.0
    """worker: Total messages per second below which shards are not moved because of load."""
    balance_after_s: float = 60.0
    """worker: Time for which the load must be uneven before shards are moved."""
    fresh_due_s: float = 5.0
    """api, relay, mta: Delay after which an mta process finds a new message by its due time if no hint arrived through
    Redis."""
    site_connections: int = 20
    """mta: Maximum number of simultaneous connections to the mail servers of one site (Postfix
    default_destination_concurrency_limit)."""
    messages_per_connection: int = 100
    """mta: Maximum number of messages sent over one connection."""
    mta_active_limit: int = 2_000
    """mta: Maximum number of deliveries that one mta process keeps in memory."""
    mta_connections: int = 1_000
    """mta: Maximum number of connections to mail servers that one mta process keeps open."""
    connect_timeout_s: float = 30.0
    """mta: Time limit for connecting to a mail server."""
    reply_timeout_s: float = 300.0
    """mta: Time limit for the greeting and each reply of a mail server (RFC 5321 4.5.3.2)."""
    final_dot_timeout_s: float = 600.0
    """mta: Time limit for a mail server's reply after the message content (RFC 5321 4.5.3.2.6); a shorter one risks
    duplicate deliveries."""
    retry_ladder_s: tuple[float, ...] = (
        30, 60, 120, 300, 900, 1800, 3600, 7200, 14400, 28800,
    )  # fmt: skip
    """mta: Waits between the attempts of a delivery; the last one repeats until `give_up_s`."""
    give_up_s: float = 72 * 3600.0
    """api, mta, worker: Time after which a message that could not be delivered bounces."""
    schedule_grace_s: float = 3600.0
    """worker: Time for which the release of a scheduled message waits for quota."""
    broadcast_reserve: float = 0.0
    """worker: Share of an account's daily and monthly limits, 0 to 0.5, that broadcasts leave for its other mail."""
    drain_s: float = 20.0
    """all: Time that a process has to finish its work when it is told to stop."""
    tls_cert: Path | None = None
    """front, relay, mx: PEM file with the certificate chain for SMTP submission and incoming mail; unset: self-signed;
    in live mode there is then no submission."""
    tls_key: Path | None = None
    """front, relay, mx: PEM file with the key of that certificate."""
    relay_sessions: int = 2_000
    """front, relay: Maximum number of open SMTP sessions of one relay process."""
    relay_sessions_each: int = 100
    """front, relay: Maximum number of these sessions from one IPv4 address or one IPv6 /64."""
    relay_idle_s: float = 300.0
    """front, relay: Time without a command after which an SMTP session is closed (RFC 5321 4.5.3.2.7)."""
    relay_login_s: float = 60.0
    """front, relay: Time from connecting to a successful AUTH."""
    relay_session_s: float = 3600.0
    """front, relay: Maximum duration of an SMTP session."""
    relay_login_delay_s: float = 1.0
    """front, relay: Delay before the reply to a failed AUTH."""
    proxy_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """front, relay, mx: Networks of load balancers that speak the PROXY protocol (v1, v2) to these processes."""
    mx_sessions: int = 2_000
    """front, mx: Maximum number of open SMTP sessions of one mx process."""
    mx_sessions_each: int = 50
    """front, mx: Maximum number of these sessions from one IPv4 address or one IPv6 /64 (Postfix
    smtpd_client_connection_count_limit)."""
    mx_idle_s: float = 300.0
    """front, mx: Time without a command after which an SMTP session is closed (RFC 5321 4.5.3.2.7)."""
    mx_session_s: float = 3600.0
    """front, mx: Maximum duration of an SMTP session, and of the transfer of one message."""
    inbound_max_bytes: int = 40 * MEBIBYTE
    """front, mx: Maximum size of a received message."""
    inbound_max_inflight_bytes: int = 256 * MEBIBYTE
    """front, mx: Memory that one process may use for messages that it is receiving; senders try again later when it is
    full."""
    mx_unsolicited_bytes_each: int = 16 * MEBIBYTE
    """mx: Bytes that one IPv4 address or one IPv6 /64 may send at once to report addresses, postmaster@ and abuse@, and
    again over 128 s; senders of more try again later."""
    reports_max_bytes: int = 1024 * MEBIBYTE
    """mx, worker: Disk space for all stored reports; senders of more try again later."""
    inbound_reject_score: float | None = None
    """mx: Spam score from which a message is refused; unset: none is refused, from 6 on it is marked as spam."""
    complaint_reporters: tuple[str, ...] = (
        "feedback@arf.mail.yahoo.com",  # Yahoo and AOL: senders.yahooinc.com/complaint-feedback-loop
        "staff@hotmail.com",  # Microsoft's JMRP; anybody may have another address at hotmail.com
        # Validity's loops for Comcast, Rackspace, Mail.ru and others; these and the following as AbuseIO/parser-fbl
        # lists them (config/Fbl.php).
        "senderscore.net",
        "fbl.fastmail.com",
        "fbl.hostedemail.com",  # OpenSRS
        "fbl.apps.rackspace.com",
        "fbl.synacor.com",
        "fbl.zoho.com",
    )  # fmt: skip
    """worker: Reporters whose DKIM-signed complaints count without a token of the service: From addresses, or domains
    in which only reports are written, separated by commas. Your own list replaces the default; repeat the entries that
    you keep."""
    rspamd_url: str | None = None
    """mx: URL of rspamd's normal worker, such as http://127.0.0.1:11333; unset: a score from SPF, DKIM and DMARC."""
    rspamd_required: bool = False
    """mx: Refuse mail for now (451) while rspamd does not respond; otherwise the built-in score replaces it."""
    rspamd_timeout_s: float = 15.0
    """mx: Time limit for the response of rspamd to one message."""
    clamd: SocketAddress | None = None
    """mx: Socket of clamd, host:port or unix:/path; unset: attachments are not scanned for viruses."""
    clamd_required: bool = False
    """api, mx: Refuse mail for now (451) while clamd does not respond, and downloads of attachments whose scan failed;
    otherwise attachments are marked `failed`."""
    clamd_timeout_s: float = 30.0
    """mx: Time limit for clamd's scans of one message."""
    http_proxy_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """api, front: Networks of load balancers whose X-Forwarded-For the API trusts."""
    webhook_ladder_s: tuple[float, ...] = (10, 60, 300, 1800, 7200, 21600, 43200)
    """worker: Waits between the attempts of a webhook post."""
    webhook_timeout_s: float = 10.0
    """worker: Time limit for connecting to an endpoint, sending and receiving the whole response."""
    webhook_connections: int = 1_000
    """worker: Maximum number of requests to webhook endpoints that one worker has in flight."""
    webhook_connections_each: int = 16
    """worker: Maximum number of these requests to one endpoint."""
    domain_check_s: float = 6 * 3600.0
    """worker: Time between two checks of a verified domain's DNS records."""
    cloudflare_url: str = "https://api.cloudflare.com"
    """api: Base URL of Cloudflare's API, which publishes DNS records for customers who ask for it."""
    blocklist_ip_zones: tuple[BlocklistZone, ...] = ()
    """worker: DNS blocklists of addresses to check the source addresses against, such as
    `zen.spamhaus.org,bl.spamcop.net`; `name=zone` names a list, which a zone that contains a subscriber's key needs.
    Read the terms of each list first. Unset: no checks."""
    blocklist_domain_zones: tuple[BlocklistZone, ...] = ()
    """worker: DNS blocklists of domains to check the verified domains of customers against, such as
    `dbl.spamhaus.org,multi.surbl.org`; names as above. Unset: no checks."""
    blocklist_check_s: float = 3600.0
    """worker: Time between two checks of an address or a domain against the blocklists."""
    tail_heartbeat_s: float = 15.0
    """api: Time between two heartbeats on an open tail."""
    tail_idle_s: float = 900.0
    """api: Time without a message event after which a tail is closed."""
    tail_lease_s: float = 6.0
    """api: Time after which the tails of a crashed API worker no longer count against limits."""
    tails_per_worker: int = 5_000
    """api: Maximum number of tails that one API worker keeps open."""
    stream_write_s: float = 30.0
    """api, front: Time without progress after which the API disconnects a client that does not read its response."""
    log_output: Literal["files", "stdout"] = "files"
    """up: Where the log lines of the processes go: `files` in the folder `log` of the state folder, or the standard
    output of `ops up`, as containers expect."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """api, front, relay, mx, mta, worker: Lowest level of the log lines that are written; `ops log level` changes it
    for a limited time."""
    traces: bool = False
    """api, relay, mta, worker: Whether to record spans of messages and export them by OTLP over HTTP; the standard
    variables such as `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_TRACES_SAMPLER` say where to and how many. Needs the
    packages of `waybill[otel]`."""
    trace_url: str | None = None
    """all: URL of a trace in your tracing system, with `{trace_id}` in place of the id; `ops explain` prints it."""
    signup: Literal["auto", "open", "closed"] = "auto"
    """api: `open` lets everybody sign up, `closed` requires an invitation; `auto` is open, but closed in local mode
    while the API listens on an address that other machines reach."""
    signup_challenge: Literal["off", "required"] = "off"
    """api: `required` demands a proof of work at sign-up."""
    operators: tuple[str, ...] = ()
    """api: Email addresses of the people who may use the operator's part of the API and the console, separated by
    commas; an address counts once it is verified and `ops person operator` has confirmed its person. Unset: in local
    mode the owner of the first account, in live mode nobody."""
    idp_issuer: str | None = None
    """api: Issuer URL of the OpenID Connect provider that people may sign in with; unset: none."""
    idp_client_id: str | None = None
    """api: Client id at that provider."""
    idp_client_secret: str | None = None
    """api: Client secret at that provider."""
    idp_name: str | None = None
    """api: Display name of the provider; unset: the issuer's host."""
    idp_scopes: str = "openid email profile"
    """api: Scopes to request from the provider."""
    idp_app_redirects: tuple[str, ...] = ()
    """api: Redirect URIs of apps for sign-in, such as com.example.app:/signed-in."""
    allow_private_idp: bool | None = None
    """api: Allow an issuer with a private address; unset: as for webhooks."""
    passkey_rp_id: str | None = None
    """api: Relying party ID of passkeys: the public URL's host or a domain above it; unset: that host."""
    prices: str | None = None
    """api, worker: Prices without tax in minor units, such as starter:month:EUR=1900,starter:year:EUR=19000; unset: no
    plan can be bought (examples in local mode)."""
    tax_rates: str | None = None
    """api, worker: Tax rates in percent by the buyer's country, such as DE=19,FR=20; unset: no tax."""
    seller_name: str | None = None
    """api, worker: Legal name of the seller on invoices; needed to sell plans."""
    seller_address: str | None = None
    """api, worker: Address of the seller on invoices, its lines separated by ` | `."""
    seller_country: str | None = None
    """api, worker: Country of the seller (ISO 3166-1), such as DE; decides about the reverse charge in the EU."""
    seller_tax_id: str | None = None
    """api, worker: VAT id of the seller on invoices."""
    seller_email: str | None = None
    """api, worker: Address for questions about invoices, printed on them."""
    payment_provider: Literal["payprov", "stripe"] = "payprov"
    """api, worker: Provider of checkout pages and payments."""
    payprov_url: str | None = None
    """api, worker: Base URL of the provider `payprov`; unset in local mode: a simulated one inside the API."""
    payprov_secret: str | None = None
    """api, worker: Secret that signs its events; while it is being changed, the new and the old one, with a comma
    between."""
    stripe_key: str | None = None
    """api, worker: Secret key of the Stripe account (sk_… or rk_…)."""
    stripe_webhook_secret: str | None = None
    """api: Signing secret of Stripe's webhook endpoint (whsec_…); while it is being changed, two, with a comma
    between."""
    stripe_url: str | None = None
    """api, worker: Base URL of Stripe's API, for tests; unset: Stripe's own."""
    python: str | None = None
    """start: Python that creates the virtual environment on the first start, a path or a name on PATH; unset: an
    optimised build of the same or a newer version if there is one."""

    @property
    def pepper(self) -> Pepper:
        """Return the pepper, with the previous one while both are set; raises RuntimeError without a pepper."""
        if self.key_pepper is None:
            raise RuntimeError("No key pepper is configured. Set WAYBILL_KEY_PEPPER.")
        return Pepper(self.key_pepper, self.key_pepper_previous)
