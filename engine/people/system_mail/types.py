"""Define the kinds of system mail."""

from enum import StrEnum


class SystemMailKind(StrEnum):
    """Name the subject of a mail. Each has a template; brackets list the names in its `detail`.

    `requester` in `detail` is the account or person that caused a mail to a mailbox of somebody else.
    """

    VERIFY_EMAIL = "verify_email"  # links with the mail's two tokens [account_name, signed_up_at, network]
    ADDRESS_TAKEN = "address_taken"  # someone signed up with an address already in use
    FORGOT_PASSWORD = "forgot_password"  # noqa: S105 - the address may be unknown; it is looked up at sending
    PASSWORD_CHANGED = "password_changed"  # noqa: S105 - a kind of mail [ended]
    CONFIRM_EMAIL = "confirm_email"  # to the new address, a link with the mail's token
    EMAIL_CHANGING = "email_changing"  # to the old address [new_email]
    EMAIL_CHANGED = "email_changed"  # to the old address [new_email]
    INVITE = "invite"  # a link with the mail's token [account_name, inviter, role]
    MEMBER_REMOVED = "member_removed"  # [account_name]
    OWNERSHIP_TRANSFERRED = "ownership_transferred"  # to both [account_name, former, owner]
    SECOND_FACTOR_ENABLED = "second_factor_enabled"
    SECOND_FACTOR_DISABLED = "second_factor_disabled"
    RECOVERY_CODE_USED = "recovery_code_used"  # [left]
    CODES_REFUSED = "codes_refused"  # five wrong codes in a row after the right password
    PASSKEY_ADDED = "passkey_added"  # [name]
    PASSKEY_REMOVED = "passkey_removed"  # [name]
    PASSKEY_SUSPECTED = "passkey_suspected"  # [name]
    IDENTITY_LINKED = "identity_linked"  # [issuer, removed, ended]
    IDENTITY_UNLINKED = "identity_unlinked"  # [issuer]
    API_KEY_CREATED = "api_key_created"  # to the account's owners [account_name, key_name, hint]
    DOMAIN_FAILED = "domain_failed"  # to owners and admins, by the area domains [account_name, domain, reason, id]
    DELETION_SCHEDULED = "deletion_scheduled"  # [account_name, scheduled_for]
    DELETION_CANCELED = "deletion_canceled"  # [account_name]
    ACCOUNT_SUSPENDED = "account_suspended"  # to owners and admins [account_name, reason]
    ACCOUNT_RESUMED = "account_resumed"  # to owners and admins [account_name]
    INVOICE_ISSUED = "invoice_issued"  # to owners and admins [account_name, document, number, total, plan, invoice]
    PAYMENT_FAILED = "payment_failed"  # to owners and admins [account_name, plan, amount, ends_on]
    PLAN_CHANGED = "plan_changed"  # to owners and admins [account_name, before, after]
    ALERT_FIRED = "alert_fired"  # to owners and admins, see engine/accounts/alerts/mail.py
    BROADCAST_STOPPED = "broadcast_stopped"  # to owners and admins [account_name, name, why, id, counts of outcomes]
    DAILY_LIMIT_REACHED = "daily_limit_reached"  # to owners and admins [account_name, used, limit, period, next_period]
    MONTHLY_LIMIT_NEAR = "monthly_limit_near"  # as the one above
    MONTHLY_LIMIT_REACHED = "monthly_limit_reached"  # as the one above
    BROADCAST_IN_REVIEW = "broadcast_in_review"  # to the operator [account_name, name, sender, recipients, id]
    AGENT_SENDS_WAITING = "agent_sends_waiting"  # to those who may approve [account_name, waiting]
    LEAD = "lead"  # to the operator [name, email, company, message]
