// The types of events that the account log can hold: those of the account, then those of messages.
/** All known types; a filter in the address may name another one. */
export const KNOWN_TYPES = `
account.created account.deletion_canceled account.deletion_scheduled account.ownership_transferred
account.limits_agreed account.plan_changed account.renamed account.resumed account.suspended account.updated
agent_send.approved agent_send.declined agent_send.requested
alert.ended alert.fired alert_rule.created alert_rule.deleted alert_rule.updated api_key.created api_key.renamed
api_key.revoked api_key.rotated broadcast.approved broadcast.canceled broadcast.created broadcast.deleted
broadcast.finished broadcast.paused broadcast.rejected broadcast.resumed broadcast.review_requested
broadcast.scheduled broadcast.started broadcast.stopped broadcast.updated cloudflare.connected
cloudflare.disconnected contact.confirmed contact.created contact.deleted contact.imported contact.resubscribed
contact.unsubscribed contact.updated delivery.resumed delivery.suspended domain.added domain.dns_published
domain.failed domain.key_rotated domain.key_rotation_requested domain.removed domain.return_path_failed
domain.return_path_verified domain.updated domain.verified erasure.completed erasure.requested image.created image.deleted inbound.received inbound_address.created
inbound_address.deleted inbound_address.updated inbound_message.deleted inbound_message.forward_failed
inbound_message.forwarded inbound_message.read inbound_message.replayed inbound_message.spam inbound_route.created
inbound_route.deleted inbound_route.updated layout.created layout.deleted layout.published layout.renamed lead.received list.created list.deleted list.member_removed
list.members_added list.updated member.email_change_requested member.email_changed member.email_verified
member.identity_linked member.identity_unlinked member.invite_resent member.invite_revoked member.invited
member.joined member.passkey_added member.passkey_removed member.passkey_renamed member.passkey_suspected
member.password_changed member.password_reset member.profile_changed member.recovery_codes_replaced member.removed
member.role_changed member.second_factor_disabled member.second_factor_enabled member.sign_in_link_made
member.signed_in member.signed_out member.ways_in_removed mta_sts.updated platform.appointed platform.changed segment.created
segment.deleted segment.updated stream.created stream.deleted stream.updated sub_account.created sub_account.deletion_canceled
sub_account.deletion_scheduled sub_account.erased sub_account.member_joined sub_account.resumed
sub_account.suspended sub_account.updated suppression.added suppression.removed template.created template.deleted
template.published template.renamed verification.finished verification_settings.updated webhook.created
webhook.deleted webhook.rotated webhook.test webhook.updated accepted queued attempted delivered deferred bounced
complained failed rejected suppressed scheduled schedule_canceled schedule_failed
`.trim().split(/\s+/);
