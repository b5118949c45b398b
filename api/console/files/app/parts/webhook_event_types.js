// The event types that endpoints can receive, in groups.

/** Groups: [name, [[type, sentence], …]]. */
export const EVENT_GROUPS = [
  ["Sending", [
    ["accepted", "The message was accepted for sending."],
    ["queued", "The message is waiting for delivery."],
    ["scheduled", "The message will be sent later."],
    ["schedule_canceled", "A scheduled message was canceled."],
    ["schedule_failed", "A scheduled message couldn't be sent."],
    ["rejected", "Your account's rules rejected the message."],
  ]],
  ["Delivery", [
    ["attempted", "A delivery attempt was made."],
    ["delivered", "The recipient's mail server accepted it."],
    ["deferred", "The recipient's mail server asked to retry later."],
    ["bounced", "The recipient's mail server rejected it permanently."],
    ["failed", "It couldn't be delivered in time."],
    ["suppressed", "The recipient is on the suppression list."],
  ]],
  ["Recipients", [
    ["complained", "The recipient reported it as spam."],
    ["suppression.added", "An address was added to the suppression list."],
    ["contact.confirmed", "A contact used its confirmation link."],
    ["contact.unsubscribed", "A contact unsubscribed."],
  ]],
  ["Account", [
    ["inbound.received", "A message was received."],
    ["domain.verified", "A domain can send."],
    ["domain.failed", "A domain can no longer send."],
    ["alert.fired", "An alert rule fired."],
    ["alert.ended", "An alert stopped firing."],
    ["broadcast.paused", "A broadcast paused, for example at a limit."],
    ["broadcast.finished", "All messages of a broadcast were accepted or skipped."],
    ["verification.finished", "A verification ended: approved, expired, exhausted or canceled."],
  ]],
];

/** Every event type that an endpoint can subscribe to. */
export const EVENT_TYPES = EVENT_GROUPS.flatMap(([, types]) => types.map(([type]) => type));

/** The number of types that one endpoint may name; all of them are chosen by naming none. */
export const MAX_CHOSEN = 20;
