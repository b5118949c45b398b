// The event types that endpoints can receive, in groups.

/** Groups: [name, [[type, sentence], …]]. */
export const EVENT_GROUPS = [
  ["Sending", [
    ["accepted", "The service took the message."],
    ["queued", "It waits for delivery."],
    ["scheduled", "It will be sent at a later time."],
    ["schedule_canceled", "A scheduled message was canceled."],
    ["schedule_failed", "A scheduled message could not be sent."],
    ["rejected", "The message was refused by the account's rules."],
  ]],
  ["Delivery", [
    ["attempted", "A server was tried."],
    ["delivered", "The server of the recipient took it."],
    ["deferred", "The server asked to try later."],
    ["bounced", "The server refused it for good."],
    ["failed", "It could not be delivered in time."],
    ["suppressed", "The recipient is on the suppression list."],
  ]],
  ["Recipients", [
    ["complained", "The recipient reported it as spam."],
    ["suppression.added", "An address came onto the suppression list."],
    ["contact.confirmed", "A contact followed its confirmation link."],
    ["contact.unsubscribed", "A contact unsubscribed."],
  ]],
  ["Account", [
    ["inbound.received", "A message was received."],
    ["domain.verified", "A domain can send."],
    ["domain.failed", "A domain can't send any more."],
    ["alert.fired", "An alert rule fired."],
    ["alert.ended", "A firing alert ended."],
    ["broadcast.paused", "A broadcast paused, for example at a limit."],
    ["broadcast.finished", "All messages of a broadcast were accepted or skipped."],
    ["verification.finished", "A verification was approved, or ended without."],
  ]],
];

/** Every event type that an endpoint can subscribe to. */
export const EVENT_TYPES = EVENT_GROUPS.flatMap(([, types]) => types.map(([type]) => type));

/** The number of types that one endpoint may name; all of them are chosen by naming none. */
export const MAX_CHOSEN = 20;
