// The events of the account log in words: "created the API key", "The domain was verified". Pure functions.
import { eventTitle } from "./explain.js";

const NOUNS = {
  __proto__: null,
  account: "the account", agent_send: "the email of an agent", alert: "an alert", alert_rule: "the alert rule", api_key: "the API key", broadcast: "the broadcast",
  cloudflare: "Cloudflare", contact: "the contact", delivery: "the delivery", domain: "the domain", erasure: "the erasure", inbound: "an email",
  inbound_address: "the inbound address", inbound_message: "the received message", inbound_route: "the inbound route", layout: "the layout",
  lead: "a lead", list: "the list", mta_sts: "the MTA-STS policy of", segment: "the segment", stream: "the stream",
  sub_account: "the sub-account", suppression: "the suppression of", template: "the template", verification: "a verification",
  verification_settings: "the branding of codes", webhook: "the webhook endpoint",
};
const VERBS = { __proto__: null, updated: "changed", canceled: "canceled", replayed: "rerouted", spam: "marked", read: "opened" };

// [what somebody did, what happened without anybody]; the thing that the event is about follows.
const SPECIAL = {
  __proto__: null,
  "account.deletion_scheduled": ["scheduled the deletion of the account", "The deletion of the account was scheduled"],
  "account.deletion_canceled": ["canceled the deletion of the account", "The deletion of the account was canceled"],
  "account.ownership_transferred": ["transferred the ownership", "The ownership was transferred"],
  "account.plan_changed": ["changed the plan", "The plan was changed"],
  "account.limits_agreed": ["changed the agreed limits", "The agreed limits were changed"],
  "account.renamed": ["renamed the account to", "The account was renamed to"],
  "broadcast.review_requested": ["requested a review of the broadcast", "The broadcast waits for review"],
  "contact.confirmed": ["confirmed the contact", "Confirmed by the contact"],
  "contact.imported": ["imported contacts", "Contacts were imported"],
  "contact.unsubscribed": ["unsubscribed the contact", "Unsubscribed by the contact"],
  "contact.resubscribed": ["resubscribed the contact", "Resubscribed by the contact"],
  "delivery.suspended": ["held deliveries", "Deliveries were held"],
  "delivery.resumed": ["resumed deliveries", "Deliveries were resumed"],
  "domain.dns_published": ["published the DNS records of the domain", "The DNS records of the domain were published"],
  "domain.failed": ["checked the domain", "The domain is no longer verified"],
  "domain.key_rotated": ["rotated the signing key of the domain", "The signing key of the domain was rotated"],
  "domain.key_rotation_requested": ["started a key rotation of the domain", "A key rotation of the domain started"],
  "domain.return_path_verified": ["verified the return path of the domain", "The return path of the domain was verified"],
  "domain.return_path_failed": ["checked the return path of the domain", "The return path of the domain is no longer verified"],
  "erasure.requested": ["requested the erasure of a recipient", "The erasure of a recipient was requested"],
  "erasure.completed": ["completed the erasure of a recipient", "The erasure of a recipient was completed"],
  "inbound_message.forward_failed": ["failed to forward the received message", "The received message could not be forwarded"],
  "list.member_removed": ["removed a contact from the list", "A contact was removed from the list"],
  "list.members_added": ["added contacts to the list", "Contacts were added to the list"],
  "member.email_change_requested": ["requested a new sign-in address", "A new sign-in address was requested"],
  "member.email_changed": ["changed the sign-in address", "A sign-in address was changed"],
  "member.email_verified": ["confirmed the address", "An address was confirmed"],
  "member.identity_linked": ["linked an identity", "An identity was linked"],
  "member.identity_unlinked": ["unlinked an identity", "An identity was unlinked"],
  "member.invited": ["invited a person", "A person was invited"],
  "member.invite_resent": ["resent an invitation", "An invitation was resent"],
  "member.invite_revoked": ["withdrew an invitation", "An invitation was withdrawn"],
  "member.joined": ["joined the account", "A person joined the account"],
  "member.passkey_added": ["created a passkey", "A passkey was created"],
  "member.passkey_removed": ["deleted a passkey", "A passkey was deleted"],
  "member.passkey_renamed": ["renamed a passkey", "A passkey was renamed"],
  "member.passkey_suspected": ["used a passkey that may be copied", "A passkey may have been copied"],
  "member.password_changed": ["changed the password", "A password was changed"],
  "member.password_reset": ["reset the password", "A password was reset"],
  "member.profile_changed": ["changed the profile", "A profile was changed"],
  "member.recovery_codes_replaced": ["created new recovery codes", "Recovery codes were replaced"],
  "member.removed": ["removed the member", "A member was removed"],
  "member.role_changed": ["changed the role of", "A role was changed"],
  "member.second_factor_disabled": ["turned off the authenticator", "An authenticator was turned off"],
  "member.second_factor_enabled": ["turned on the authenticator", "An authenticator was turned on"],
  "member.sign_in_link_made": ["created a sign-in link", "A sign-in link was created"],
  "member.signed_in": ["signed in", "A person signed in"],
  "member.signed_out": ["signed out", "A person signed out"],
  "member.ways_in_removed": ["removed ways to sign in", "Ways to sign in were removed"],
  "platform.appointed": ["appointed this account to send the instance's own email", "This account was appointed to send the instance's own email"],
  "platform.changed": ["changed the instance", "The instance was changed"],
  "sub_account.member_joined": ["joined the sub-account", "A person joined the sub-account"],
  "webhook.rotated": ["rotated the secret of the webhook endpoint", "The secret of the webhook endpoint was rotated"],
  "webhook.test": ["sent a test event to the webhook endpoint", "A test event was sent to the webhook endpoint"],
};

/** Return what `type` says: with an actor the words after its name, without one a sentence of its own. */
export function eventWords(type, { acted }) {
  const special = SPECIAL[type];
  if (special) return special[acted ? 0 : 1];
  const [area, did = ""] = type.split(".");
  const noun = NOUNS[area];
  if (!noun) return acted ? `caused the event ${type}` : type.includes(".") ? capital(type.replace(/[._]/g, " ")) : `Message: ${eventTitle(type).toLowerCase()}`;
  const verb = VERBS[did] ?? did.replaceAll("_", " ");
  return acted ? `${verb} ${noun}` : capital(did === "fired" || did === "ended" ? `${noun} ${verb}` : passive(noun, verb));
}

const passive = (noun, verb) => (noun.endsWith(" of") ? `${noun.slice(0, -3)} was ${verb}:` : `${noun} was ${verb}`);
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** Return the name of a type for the filter: "The API key was created". */
export const typeName = (type) => eventWords(type, { acted: false }).replace(/:$/, "");
