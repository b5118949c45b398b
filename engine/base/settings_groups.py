"""Group the settings for the documentation and `ops config`, in the order in which they show them."""

from typing import Final

FIELDS: Final = {
    "Host": (
        "state", "processes", "profile", "durable", "api_workers", "mta_workers", "relay_workers", "mx_workers",
        "delivery", "python", "log_output", "log_level", "traces", "trace_url", "drain_s",
        "port_base", "metrics_port", "sink_port", "dns_port",
    ),
    "Database and Redis": ("database_url", "database_read_url", "read_lag_s", "redis_url"),
    "Cells": ("directory_url", "cell"),
    "Secrets": ("key_pepper", "key_pepper_previous"),
    "Names and sender addresses": ("public_url", "mail_host", "system_from", "tls_report_from", "security_contact"),
    "HTTP API": (
        "api_host", "api_port", "http_proxy_networks", "body_deadline_s", "body_min_bytes_per_s", "max_request_bytes",
        "stream_write_s", "tail_heartbeat_s", "tail_idle_s", "tail_lease_s", "tails_per_worker", "status_page",
    ),
    "SMTP submission": (
        "submission_host", "submission_port", "submission_tls_port", "submission_open", "tls_cert", "tls_key",
        "proxy_networks",
        "relay_sessions", "relay_sessions_each", "relay_idle_s", "relay_login_s", "relay_login_delay_s",
        "relay_session_s",
    ),
    "Incoming mail": (
        "mx_host", "mx_port", "mx_sessions", "mx_sessions_each", "mx_idle_s", "mx_session_s", "inbound_max_bytes",
        "inbound_max_inflight_bytes", "mx_unsolicited_bytes_each", "reports_max_bytes", "inbound_reject_score",
        "complaint_reporters", "rspamd_url", "rspamd_required", "rspamd_timeout_s", "clamd", "clamd_required",
        "clamd_timeout_s",
        "policy_port", "policy_tls_port", "policy_http_port", "acme_directory", "acme_email",
        "acme_authorities",
    ),
    "Limits and rates": (
        "max_message_bytes", "max_inflight_bytes", "request_rate", "unauthenticated_rate", "sign_in_rate",
        "platform_daily_ceiling",
    ),
    "Sign-up and sign-in": (
        "signup", "signup_challenge", "operators", "idp_issuer", "idp_client_id", "idp_client_secret", "idp_name",
        "idp_scopes", "idp_app_redirects", "allow_private_idp", "passkey_rp_id",
    ),
    "DNS": (
        "dns_servers", "dnssec_trusted", "domain_check_s", "cloudflare_url", "blocklist_ip_zones",
        "blocklist_domain_zones", "blocklist_check_s",
    ),
    "Delivery": (
        "smtp_port", "source_ips", "tls_authorities", "allow_private_mx", "connect_timeout_s", "reply_timeout_s",
        "final_dot_timeout_s", "site_connections", "messages_per_connection", "mta_active_limit", "mta_connections",
        "fresh_due_s", "retry_ladder_s", "give_up_s", "schedule_grace_s", "broadcast_reserve",
    ),
    "Shards": (
        "shards", "lease_s", "shard_rules", "split_rate", "split_share", "split_after_s", "merge_after_s",
        "balance_rate", "balance_after_s",
    ),
    "Billing": (
        "prices", "tax_rates", "seller_name", "seller_address", "seller_country", "seller_tax_id", "seller_email",
        "payment_provider", "payprov_url", "payprov_secret", "stripe_key", "stripe_webhook_secret", "stripe_url",
    ),
    "Webhooks": (
        "webhook_ladder_s", "webhook_timeout_s", "webhook_connections", "webhook_connections_each",
        "allow_private_webhooks",
    ),
}  # fmt: skip

GROUP_OF: Final = {field: group for group, fields in FIELDS.items() for field in fields}
GROUPS: Final = tuple(FIELDS)
