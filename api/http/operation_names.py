"""Name the operations in the OpenAPI document: `POST /v1/emails` is `sendEmail`.

Generators of clients call their functions so. A name stays for ever: a new rule must not change a published one.
"""

from typing import Final

from api.http.client_names import class_name, client_method

_UNCHANGED: Final = frozenset({"analytics", "mta_sts", "stats"})  # words in -s that are no plurals
_FOREIGN: Final = {"GET": "get", "POST": "send", "PATCH": "update", "PUT": "set", "DELETE": "delete"}
_ON_ALL: Final = frozenset({"list", "export", "count", "bulk"})
# Operations that the rules below would name badly.
_NAMES: Final = {
    "DELETE /v1/account/cloudflare": "forgetCloudflareToken",
    "DELETE /v1/account/deletion": "cancelAccountDeletion",
    "DELETE /v1/auth/idp/identities/{id}": "unlinkIdentity",
    "DELETE /v1/auth/passkeys/{id}": "deletePasskey",
    "DELETE /v1/auth/sessions/{id}": "revokeSession",
    "DELETE /v1/emails/{id}/schedule": "cancelScheduledEmail",
    "DELETE /v1/lists/{id}/members/{contactId}": "removeListMember",
    "DELETE /v1/lists/{id}/opt-outs/{address}": "deleteListOptOut",
    "DELETE /v1/operator/sites/{name}": "deleteSiteRule",
    "DELETE /v1/team/invites/{id}": "revokeInvite",
    "DELETE /v1/team/members/{id}": "removeTeamMember",
    "GET /v1/account/deletion": "getAccountDeletion",
    "GET /v1/account/verify": "verifyAccountLog",
    "GET /v1/agent-access": "getAgentAccess",
    "GET /v1/analytics/delivery": "getDeliveryAnalytics",
    "GET /v1/analytics/dmarc": "getDmarcAnalytics",
    "GET /v1/analytics/providers": "getProviderAnalytics",
    "GET /v1/analytics/tls": "getTlsAnalytics",
    "GET /v1/analytics/waits": "getWaitAnalytics",
    "GET /v1/audit/export": "exportAuditEvents",
    "GET /v1/audit/verify": "verifyAuditLog",
    "GET /v1/auth/2fa": "getSecondFactor",
    "GET /v1/auth/idp/callback": "finishIdentitySignIn",
    "GET /v1/auth/idp/identities": "listIdentities",
    "GET /v1/auth/idp/nonce": "getOneTapNonce",
    "GET /v1/auth/idp/start": "startIdentitySignIn",
    "GET /v1/auth/me": "getSession",
    "GET /v1/auth/passkeys": "listPasskeys",
    "GET /v1/auth/sessions": "listSessions",
    "GET /v1/auth/signup/challenge": "getSignUpChallenge",
    "GET /v1/billing": "getBilling",
    "GET /v1/billing/history": "listBillingEvents",
    "GET /v1/billing/plans": "listPlans",
    "GET /v1/bounces/classes": "listBounceClasses",
    "GET /v1/bounces/{address}": "getAddressHistory",
    "GET /v1/broadcasts/{id}/checks": "checkBroadcast",
    "GET /v1/broadcasts/{id}/preview": "previewBroadcast",
    "GET /v1/compat/postmark/bounces": "listPostmarkBounces",
    "GET /v1/compat/postmark/bounces/{bounceId}": "getPostmarkBounce",
    "GET /v1/compat/postmark/message-streams/{stream}/suppressions/dump": "listPostmarkSuppressions",
    "GET /v1/compat/postmark/messages/outbound": "listPostmarkMessages",
    "GET /v1/compat/postmark/messages/outbound/{id}/details": "getPostmarkMessage",
    "GET /v1/compat/postmark/messages/outbound/{id}/dump": "getPostmarkMessageDump",
    "GET /v1/compat/resend/domains": "listResendDomains",
    "GET /v1/compat/resend/emails": "listResendEmails",
    "GET /v1/emails/{id}": "getEmail",
    "GET /v1/events/tail": "tailEvents",
    "GET /v1/inbound/messages/count": "countInboundMessages",
    "GET /v1/lists/{id}/opt-outs": "listListOptOuts",
    "GET /v1/lists/{id}/opt-outs/export": "exportListOptOuts",
    "GET /v1/local/sink": "listSinkMail",
    "GET /v1/local/sink/{id}": "getSinkMail",
    "GET /v1/local/sink/{id}/raw": "getSinkMailRaw",
    "GET /v1/messages/tail": "tailMessages",
    "GET /v1/openapi.json": "getOpenApiDocument",
    "GET /v1/operator/accounts": "listAccounts",
    "GET /v1/operator/accounts/{id}": "getOperatorAccount",
    "GET /v1/operator/nodes": "listNodes",
    "GET /v1/operator/queue": "getQueue",
    "GET /v1/operator/queue/held": "listHeldDeliveries",
    "GET /v1/operator/reviews": "listReviews",
    "GET /v1/operator/reviews/{id}": "getReview",
    "GET /v1/operator/shards": "getShards",
    "GET /v1/operator/sites": "listSites",
    "GET /v1/operator/sites/{name}": "getSite",
    "GET /v1/profile": "getProfile",
    "GET /v1/stats/messages": "getMessageStats",
    "GET /v1/template-starters": "listTemplateStarters",
    "GET /v1/templates/{id}/versions": "listTemplateVersions",
    "GET /v1/usage": "getUsage",
    "GET /v1/verifications/settings": "getVerificationSettings",
    "GET /v1/webhooks/{id}/deliveries": "listWebhookDeliveries",
    "PATCH /v1/compat/resend/emails/{id}": "updateResendEmail",
    "PATCH /v1/emails/{id}/schedule": "rescheduleEmail",
    "PATCH /v1/auth/passkeys/{id}": "renamePasskey",
    "PATCH /v1/operator/sites/{name}": "updateSiteRule",
    "PATCH /v1/team/members/{id}": "updateTeamMember",
    "POST /v1/account/deletion": "requestAccountDeletion",
    "POST /v1/address-checks": "checkAddresses",
    "POST /v1/auth/2fa/disable": "disableSecondFactor",
    "POST /v1/auth/2fa/enable": "enableSecondFactor",
    "POST /v1/auth/2fa/recovery-codes": "renewRecoveryCodes",
    "POST /v1/auth/2fa/setup": "setUpSecondFactor",
    "POST /v1/auth/email/change": "changeEmailAddress",
    "POST /v1/auth/email/change/confirm": "confirmEmailAddress",
    "POST /v1/auth/idp/mobile/exchange": "exchangeIdentityCode",
    "POST /v1/auth/idp/one-tap": "signInWithOneTap",
    "POST /v1/auth/idp/totp": "finishIdentitySignInWithCode",
    "POST /v1/auth/link": "signInWithLink",
    "POST /v1/auth/login": "signIn",
    "POST /v1/auth/logout": "signOut",
    "POST /v1/auth/passkeys/login/options": "beginPasskeySignIn",
    "POST /v1/auth/passkeys/login/verify": "finishPasskeySignIn",
    "POST /v1/auth/passkeys/register/options": "beginPasskeyRegistration",
    "POST /v1/auth/passkeys/register/verify": "finishPasskeyRegistration",
    "POST /v1/auth/password/change": "changePassword",
    "POST /v1/auth/password/forgot": "requestPasswordReset",
    "POST /v1/auth/password/reset": "resetPassword",
    "POST /v1/auth/password/reset/others": "listOtherWaysIn",
    "POST /v1/auth/sessions/revoke-others": "revokeOtherSessions",
    "POST /v1/auth/signup": "signUp",
    "POST /v1/auth/signup/end": "endSignUp",
    "POST /v1/auth/switch": "switchAccount",
    "POST /v1/auth/verify-email": "verifyEmailAddress",
    "POST /v1/auth/verify-email/send": "sendVerificationEmail",
    "POST /v1/billing/cancel": "cancelSubscription",
    "POST /v1/billing/checkout": "startCheckout",
    "POST /v1/billing/checkout/abandon": "abandonCheckout",
    "POST /v1/billing/pause": "pauseSubscription",
    "POST /v1/billing/resume": "resumeSubscription",
    "POST /v1/billing/{provider}/webhook": "receiveProviderEvent",
    "POST /v1/broadcasts/{id}/test": "testBroadcast",
    "POST /v1/compat/postmark/email/batchWithTemplates": "sendPostmarkEmailBatchWithTemplates",
    "POST /v1/compat/resend/emails/{id}/cancel": "cancelResendEmail",
    "POST /v1/contacts/import": "importContacts",
    "POST /v1/contacts/import/file": "importContactFile",
    "POST /v1/contacts/{id}/confirmation": "sendContactConfirmation",
    "POST /v1/domains/{id}/cloudflare": "publishDomainToCloudflare",
    "POST /v1/domains/{id}/rotate": "rotateDomainKeys",
    "POST /v1/emails/batch": "sendEmailBatch",
    "POST /v1/emails/raw": "sendRawEmail",
    "POST /v1/inbound/messages/bulk": "changeInboundMessages",
    "POST /v1/inbound/messages/{id}/read": "markInboundMessageRead",
    "POST /v1/inbound/messages/{id}/reply": "replyToInboundMessage",
    "POST /v1/inbound/messages/{id}/spam": "markInboundMessageSpam",
    "POST /v1/layouts/preview": "previewLayoutContent",
    "POST /v1/lists/{id}/members": "addListMembers",
    "POST /v1/lists/{id}/opt-outs": "addListOptOuts",
    "POST /v1/lists/{id}/opt-outs/import/file": "importListOptOutFile",
    "POST /v1/messages/resend": "resendMessages",
    "POST /v1/notices/marks": "markNotices",
    "POST /v1/operator/accounts/{id}/agreement": "setAccountAgreement",
    "POST /v1/operator/accounts/{id}/plan": "setAccountPlan",
    "POST /v1/operator/shards/weight": "setShardWeight",
    "POST /v1/segments/count": "countSegment",
    "POST /v1/sub-accounts/{id}/join": "joinSubAccount",
    "POST /v1/suppressions/import": "importSuppressions",
    "POST /v1/suppressions/import/file": "importSuppressionFile",
    "POST /v1/team/invites": "createInvite",
    "POST /v1/team/invites/accept": "acceptInvite",
    "POST /v1/team/invites/{id}/resend": "resendInvite",
    "POST /v1/team/leave": "leaveTeam",
    "POST /v1/team/transfer": "transferOwnership",
    "POST /v1/templates/preview": "previewTemplateContent",
    "POST /v1/verifications/{id}/check": "checkVerificationCode",
    "POST /v1/verifications/{id}/resend": "resendVerificationCode",
    "POST /v1/webhooks/deliveries/{id}/replay": "replayWebhookDelivery",
    "POST /v1/webhooks/payprov/failed": "receivePaymentFailure",
    "POST /v1/webhooks/payprov/refund": "receiveRefundNotice",
    "POST /v1/webhooks/payprov/success": "receivePaymentSuccess",
    "POST /v1/webhooks/{id}/replay": "replayWebhookEvents",
    "POST /v1/webhooks/{id}/rotate": "rotateWebhookSecret",
    "PUT /v1/compat/postmark/bounces/{bounceId}/activate": "activatePostmarkBounce",
    "PUT /v1/verifications/settings": "setVerificationSettings",
}  # fmt: skip


def operation_name(method: str, path: str) -> str:
    """Return the `operationId` for an HTTP method and a path such as `/v1/domains/{id}/verify`: `verifyDomain`."""
    known = _NAMES.get(f"{method} {path}")
    if known is not None:
        return known
    name = client_method(method, path)
    verb, _, rest = name.method.rstrip("_").partition("_")
    if name.group == "operator":  # the path ends with the verb
        return _operator_name(method, name.method)
    if name.group == "compat":
        return f"{_FOREIGN[method]}{''.join(class_name(singular(word)) for word in name.method.split('_'))}"
    group = class_name(name.group if verb in _ON_ALL else singular(name.group))
    if method == "GET" and verb not in {"get", *_ON_ALL}:
        return f"get{group}{class_name(name.method)}"
    return f"{verb}{group}{class_name(rest)}"


def singular(group: str) -> str:
    """Return the name of one object of a group: `inbound_addresses` is `inbound_address`."""
    if group in _UNCHANGED or not group.endswith("s"):
        return group
    return group.removesuffix("es") if group.endswith("sses") else group.removesuffix("s")


def _operator_name(method: str, name: str) -> str:
    noun, _, verb = name.partition("_")
    return f"{verb or method.lower()}{class_name(singular(noun))}"
