"""Define all event types, and which status of a message may follow which. Read by all that write events."""

from enum import StrEnum

# Sources of messages that show neither content nor recipients (engine.delivery.sealed_mail); `is_sealed_source` in SQL.
SEALED_SOURCES = frozenset({"verification", "system"})


class EventType(StrEnum):
    """Types of the events that concern one message: its waybill."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    ATTEMPTED = "attempted"
    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    FAILED = "failed"
    REJECTED = "rejected"
    SUPPRESSED = "suppressed"
    SCHEDULED = "scheduled"
    SCHEDULE_CANCELED = "schedule_canceled"
    SCHEDULE_FAILED = "schedule_failed"


class AccountEvent(StrEnum):
    """Types of the events that concern an account, its people or its settings."""

    ACCOUNT_CREATED = "account.created"
    ACCOUNT_DELETION_CANCELED = "account.deletion_canceled"
    ACCOUNT_DELETION_SCHEDULED = "account.deletion_scheduled"
    ACCOUNT_OWNERSHIP_TRANSFERRED = "account.ownership_transferred"
    ACCOUNT_PLAN_CHANGED = "account.plan_changed"
    ACCOUNT_RENAMED = "account.renamed"
    ACCOUNT_RESUMED = "account.resumed"
    ACCOUNT_LIMITS_AGREED = "account.limits_agreed"
    ACCOUNT_SUSPENDED = "account.suspended"
    ACCOUNT_UPDATED = "account.updated"
    AGENT_SEND_APPROVED = "agent_send.approved"
    AGENT_SEND_DECLINED = "agent_send.declined"
    AGENT_SEND_REQUESTED = "agent_send.requested"
    ALERT_ENDED = "alert.ended"
    ALERT_FIRED = "alert.fired"
    ALERT_RULE_CREATED = "alert_rule.created"
    ALERT_RULE_DELETED = "alert_rule.deleted"
    ALERT_RULE_UPDATED = "alert_rule.updated"
    API_KEY_CREATED = "api_key.created"
    API_KEY_RENAMED = "api_key.renamed"
    API_KEY_REVOKED = "api_key.revoked"
    API_KEY_ROTATED = "api_key.rotated"
    BROADCAST_APPROVED = "broadcast.approved"
    BROADCAST_CANCELED = "broadcast.canceled"
    BROADCAST_CREATED = "broadcast.created"
    BROADCAST_DELETED = "broadcast.deleted"
    BROADCAST_FINISHED = "broadcast.finished"
    BROADCAST_PAUSED = "broadcast.paused"
    BROADCAST_REJECTED = "broadcast.rejected"
    BROADCAST_RESUMED = "broadcast.resumed"
    BROADCAST_REVIEW_REQUESTED = "broadcast.review_requested"
    BROADCAST_SCHEDULED = "broadcast.scheduled"
    BROADCAST_STARTED = "broadcast.started"
    BROADCAST_STOPPED = "broadcast.stopped"
    BROADCAST_UPDATED = "broadcast.updated"
    CLOUDFLARE_CONNECTED = "cloudflare.connected"
    CLOUDFLARE_DISCONNECTED = "cloudflare.disconnected"
    CONTACT_CONFIRMED = "contact.confirmed"
    CONTACT_CREATED = "contact.created"
    CONTACT_DELETED = "contact.deleted"
    CONTACT_IMPORTED = "contact.imported"
    CONTACT_RESUBSCRIBED = "contact.resubscribed"
    CONTACT_UNSUBSCRIBED = "contact.unsubscribed"
    CONTACT_UPDATED = "contact.updated"
    DELIVERY_RESUMED = "delivery.resumed"
    DELIVERY_SUSPENDED = "delivery.suspended"
    DOMAIN_ADDED = "domain.added"
    DOMAIN_DNS_PUBLISHED = "domain.dns_published"
    DOMAIN_FAILED = "domain.failed"
    DOMAIN_KEY_ROTATED = "domain.key_rotated"
    DOMAIN_KEY_ROTATION_REQUESTED = "domain.key_rotation_requested"
    DOMAIN_REMOVED = "domain.removed"
    DOMAIN_RETURN_PATH_FAILED = "domain.return_path_failed"
    DOMAIN_RETURN_PATH_VERIFIED = "domain.return_path_verified"
    DOMAIN_UPDATED = "domain.updated"
    DOMAIN_VERIFIED = "domain.verified"
    ERASURE_COMPLETED = "erasure.completed"
    ERASURE_REQUESTED = "erasure.requested"
    IMAGE_CREATED = "image.created"
    IMAGE_DELETED = "image.deleted"
    INBOUND_ADDRESS_CREATED = "inbound_address.created"
    INBOUND_ADDRESS_DELETED = "inbound_address.deleted"
    INBOUND_ADDRESS_UPDATED = "inbound_address.updated"
    INBOUND_MESSAGE_DELETED = "inbound_message.deleted"
    INBOUND_MESSAGE_FORWARD_FAILED = "inbound_message.forward_failed"
    INBOUND_MESSAGE_FORWARDED = "inbound_message.forwarded"
    INBOUND_MESSAGE_READ = "inbound_message.read"
    INBOUND_MESSAGE_REPLAYED = "inbound_message.replayed"
    INBOUND_MESSAGE_SPAM = "inbound_message.spam"
    INBOUND_RECEIVED = "inbound.received"
    INBOUND_ROUTE_CREATED = "inbound_route.created"
    INBOUND_ROUTE_DELETED = "inbound_route.deleted"
    INBOUND_ROUTE_UPDATED = "inbound_route.updated"
    LEAD_RECEIVED = "lead.received"
    LAYOUT_CREATED = "layout.created"
    LAYOUT_DELETED = "layout.deleted"
    LAYOUT_PUBLISHED = "layout.published"
    LAYOUT_RENAMED = "layout.renamed"
    LIST_CREATED = "list.created"
    LIST_DELETED = "list.deleted"
    LIST_MEMBERS_ADDED = "list.members_added"
    LIST_MEMBER_REMOVED = "list.member_removed"
    LIST_UPDATED = "list.updated"
    MEMBER_EMAIL_CHANGE_REQUESTED = "member.email_change_requested"
    MEMBER_EMAIL_CHANGED = "member.email_changed"
    MEMBER_EMAIL_VERIFIED = "member.email_verified"
    MEMBER_IDENTITY_LINKED = "member.identity_linked"
    MEMBER_IDENTITY_UNLINKED = "member.identity_unlinked"
    MEMBER_INVITE_RESENT = "member.invite_resent"
    MEMBER_INVITE_REVOKED = "member.invite_revoked"
    MEMBER_INVITED = "member.invited"
    MEMBER_JOINED = "member.joined"
    MEMBER_PASSKEY_ADDED = "member.passkey_added"
    MEMBER_PASSKEY_REMOVED = "member.passkey_removed"
    MEMBER_PASSKEY_RENAMED = "member.passkey_renamed"
    MEMBER_PASSKEY_SUSPECTED = "member.passkey_suspected"
    MEMBER_PASSWORD_CHANGED = "member.password_changed"  # noqa: S105 - the name of an event
    MEMBER_PASSWORD_RESET = "member.password_reset"  # noqa: S105 - the name of an event
    MEMBER_PROFILE_CHANGED = "member.profile_changed"
    MEMBER_RECOVERY_CODES_REPLACED = "member.recovery_codes_replaced"
    MEMBER_REMOVED = "member.removed"
    MEMBER_ROLE_CHANGED = "member.role_changed"
    MEMBER_SECOND_FACTOR_DISABLED = "member.second_factor_disabled"
    MEMBER_SECOND_FACTOR_ENABLED = "member.second_factor_enabled"
    MEMBER_SIGN_IN_LINK_MADE = "member.sign_in_link_made"
    MEMBER_SIGNED_IN = "member.signed_in"
    MEMBER_SIGNED_OUT = "member.signed_out"
    MEMBER_WAYS_IN_REMOVED = "member.ways_in_removed"
    MTA_STS_UPDATED = "mta_sts.updated"
    PLATFORM_APPOINTED = "platform.appointed"
    PLATFORM_CHANGED = "platform.changed"
    SEGMENT_CREATED = "segment.created"
    SEGMENT_DELETED = "segment.deleted"
    SEGMENT_UPDATED = "segment.updated"
    STREAM_CREATED = "stream.created"
    STREAM_UPDATED = "stream.updated"
    STREAM_DELETED = "stream.deleted"
    SUB_ACCOUNT_CREATED = "sub_account.created"
    SUB_ACCOUNT_DELETION_CANCELED = "sub_account.deletion_canceled"
    SUB_ACCOUNT_DELETION_SCHEDULED = "sub_account.deletion_scheduled"
    SUB_ACCOUNT_ERASED = "sub_account.erased"
    SUB_ACCOUNT_MEMBER_JOINED = "sub_account.member_joined"
    SUB_ACCOUNT_RESUMED = "sub_account.resumed"
    SUB_ACCOUNT_SUSPENDED = "sub_account.suspended"
    SUB_ACCOUNT_UPDATED = "sub_account.updated"
    SUPPRESSION_ADDED = "suppression.added"
    SUPPRESSION_REMOVED = "suppression.removed"
    TEMPLATE_CREATED = "template.created"
    TEMPLATE_DELETED = "template.deleted"
    TEMPLATE_PUBLISHED = "template.published"
    TEMPLATE_RENAMED = "template.renamed"
    VERIFICATION_FINISHED = "verification.finished"
    VERIFICATION_SETTINGS_UPDATED = "verification_settings.updated"
    WEBHOOK_CREATED = "webhook.created"
    WEBHOOK_DELETED = "webhook.deleted"
    WEBHOOK_ROTATED = "webhook.rotated"
    WEBHOOK_TEST = "webhook.test"
    WEBHOOK_UPDATED = "webhook.updated"


class Status(StrEnum):
    """Delivery status of a message or of one of its recipients."""

    QUEUED = "queued"
    SENDING = "sending"
    DELIVERED = "delivered"
    BOUNCED = "bounced"
    COMPLAINED = "complained"
    FAILED = "failed"
    REJECTED = "rejected"
    SCHEDULED = "scheduled"
    CANCELED = "canceled"


# New status -> the statuses that it may follow. An attempt is stored together with its outcome, so a final status may
# follow `queued` (ops/decisions/0048).
MOVES: dict[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.SCHEDULED}),
    Status.SENDING: frozenset({Status.QUEUED, Status.SENDING}),
    Status.DELIVERED: frozenset({Status.QUEUED, Status.SENDING}),
    # A late bounce may follow the failure or rejection of another recipient (`late_bounce`).
    Status.BOUNCED: frozenset({Status.QUEUED, Status.SENDING, Status.DELIVERED, Status.FAILED, Status.REJECTED}),
    Status.FAILED: frozenset({Status.QUEUED, Status.SENDING}),
    # One of several recipients may complain before the others are settled, or after they have bounced (`complain`).
    Status.COMPLAINED: frozenset({Status.DELIVERED, Status.SENDING, Status.BOUNCED, Status.FAILED, Status.REJECTED}),
    Status.REJECTED: frozenset({Status.QUEUED, Status.SENDING, Status.SCHEDULED}),
    Status.SCHEDULED: frozenset(),
    Status.CANCELED: frozenset({Status.SCHEDULED}),
}

SETTLED: frozenset[Status] = frozenset({
    Status.DELIVERED, Status.BOUNCED, Status.COMPLAINED, Status.FAILED, Status.REJECTED, Status.CANCELED,
})  # fmt: skip

# A message takes the worst of its recipients' statuses; later in this list is worse.
SEVERITY: tuple[Status, ...] = (
    Status.DELIVERED, Status.REJECTED, Status.FAILED, Status.BOUNCED, Status.COMPLAINED,
)  # fmt: skip


def status_of_message(recipients: list[Status]) -> Status:
    """Derive a message's status from the statuses of its recipients: `sending` until all of them are final."""
    if any(status not in SETTLED for status in recipients):
        return Status.SENDING
    return max(recipients, key=SEVERITY.index)
