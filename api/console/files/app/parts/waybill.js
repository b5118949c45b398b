// The waybill of a message as a timeline: each event, each attempt with its SMTP conversation, what it means.
import { useCall } from "../core/api.js";
import { breakable, Button, Chip, Icon, Time } from "../core/ui.js";
import { classes, dateTime, duration, html, plural, useState } from "../core/view.js";
import { attemptMs, eventTitle, explained, stepName, whose } from "./explain.js";
import { AttemptWait } from "./waits.js";

const ICONS = { accepted: "check", queued: "clock", attempted: "server", delivered: "circle-check", deferred: "clock", bounced: "circle-x", complained: "triangle-alert", failed: "circle-x", rejected: "ban", suppressed: "ban", scheduled: "calendar", schedule_canceled: "x", schedule_failed: "circle-x" };
const TONES = { delivered: "good", deferred: "warn", bounced: "bad", failed: "bad", rejected: "bad", complained: "bad", schedule_failed: "bad", suppressed: "warn" };
// Shown in their own places, or of no use to a reader.
const PLACED = new Set(["recipient", "scope", "class", "smtp_code", "enhanced_code", "diagnostic", "mx", "tls", "attempt", "conversation", "iana_class", "to_domain", "next_attempt_at", "plaintext", "simulated", "suppressed", "late", "waits", "fair_share"]);

/** All events in order, with the waiting times of attempts; `only` limits them to one recipient (address) and its domain. Repeated deferrals are folded. */
export function Waybill({ events, waits = [], only = null }) {
  const [all, setAll] = useState(false);
  const shown = only ? events.filter((one) => concerns(one, only)) : events;
  const folds = all ? new Map() : repeats(shown);
  const hidden = new Set([...folds.values()].flat());
  const summary = deliveredIn(shown);
  return html`${summary && html`<p class="waybill-summary">${summary}</p>`}<ol class="waybill">${shown.map((event, at) => html`${folds.has(at) && html`<li key="fold ${at}" class="waybill-entry"><span class="waybill-mark"><${Icon} name="ellipsis" size=${14} /></span><button type="button" class="link-button" onClick=${() => setAll(true)}>Show ${plural(folds.get(at).filter((one) => shown[one].type === "deferred").length, "more attempt")} with the same reply</button></li>`}
    ${!hidden.has(at) && html`<${Entry} key=${event.id} event=${event} before=${shown[at - 1]} wait=${waits.find((one) => one.eventId === event.id)} />`}`)}</ol>`;
}

/**
 * Return what is folded of deferrals in a row with the same reply: all between the first and the last with its attempt,
 * as a map of the first folded place to all folded places.
 */
export function repeats(events) {
  const reply = ({ detail: { recipient, smtp_code: code, enhanced_code: enhanced, class: kind } }) => JSON.stringify([recipient, code, enhanced, kind]);
  const runs = [];
  let run = [];
  for (const [at, event] of events.entries()) {
    if (event.type === "attempted") continue;
    if (event.type === "deferred" && run.length && reply(events[run[0]]) === reply(event)) run.push(at);
    else {
      runs.push(run);
      run = event.type === "deferred" ? [at] : [];
    }
  }
  const long = [...runs, run].filter((one) => one.length > 2);
  return new Map(long.map((one) => [one[0] + 1, Array.from({ length: one.at(-2) - one[0] }, (_, more) => one[0] + 1 + more)]));
}

const ORDINALS = { one: "st", two: "nd", few: "rd", other: "th" };
const ordinals = new Intl.PluralRules("en", { type: "ordinal" });

/** Return in a sentence when a message to one recipient was delivered; null for others. */
export function deliveredIn(events) {
  const delivered = events.filter((one) => one.type === "delivered");
  const attempts = events.filter((one) => one.type === "attempted").length;
  if (delivered.length !== 1 || attempts === 0 || new Set(events.map((one) => one.detail.recipient).filter(Boolean)).size > 1) return null;
  const took = duration(Date.parse(delivered[0].createdAt) - Date.parse(events[0].createdAt));
  return `Delivered at the ${attempts === 1 ? "first" : `${attempts}${ORDINALS[ordinals.select(attempts)]}`} attempt, after ${took}.`;
}

function concerns({ detail }, address) {
  if (detail.recipient) return detail.recipient === address;
  const domain = address.slice(address.lastIndexOf("@") + 1).toLowerCase();
  return !detail.to_domain || detail.to_domain === domain || !detail.attempt;
}

function Entry({ event, before, wait }) {
  const { type, detail, createdAt } = event;
  const { who, what, next } = explained(event);
  const since = before ? Date.parse(createdAt) - Date.parse(before.createdAt) : null;
  return html`<li class=${classes("waybill-entry", TONES[type])}>
    <span class="waybill-mark"><${Icon} name=${ICONS[type] ?? "info"} size=${14} /></span>
    <div class="grow stack-tight">
      <div class="row-wide"><h2>${eventTitle(type)}${detail.attempt && type === "attempted" ? ` ${detail.attempt}` : ""}${place(type, detail)}</h2>
        <span class="soft small"><${Time} at=${createdAt} />${since !== null && since >= 0 ? ` · +${duration(since)}` : ""} · <span title="Number in the account log">#${event.seq}</span></span></div>
      ${what && html`<p>${what}${whose(who) && html` <${Chip} tone=${who === "us" ? "warn" : ""}>${whose(who)}<//>`}${detail.simulated && html` <${Chip} tone="">simulated<//>`}</p>`}
      ${next && html`<p class="soft">${next}</p>`}
      ${detail.diagnostic && html`<p class="reply"><code>${detail.diagnostic}</code></p>`}
      ${detail.next_attempt_at && html`<p class="soft small">Next attempt: ${dateTime(detail.next_attempt_at)}</p>`}
      ${detail.suppressed === true && html`<p class="soft small">The address is suppressed from now on.</p>`}
      ${blocks(event) && html`<div class="row"><${Button} icon="ban" to="/suppressions" query=${{ search: detail.recipient }}>View suppression<//><${Button} to=${`/bounces/${encodeURIComponent(detail.recipient)}`}>History of the address<//><${ContactButton} email=${detail.recipient} /></div>`}
      ${type === "attempted" && html`<${Attempt} detail=${detail} />`}
      ${wait && html`<${AttemptWait} wait=${wait} />`}
      <${Rest} detail=${detail} />
    </div>
  </li>`;
}

/** True for an event after which, or because of which, its address is suppressed. */
export const blocks = ({ type, detail }) => Boolean(detail.recipient) && (type === "suppressed" || type === "complained" || detail.suppressed === true);

/** The button to the contact with an address; nothing if there is none. */
function ContactButton({ email }) {
  const { data } = useCall("GET /v1/contacts", { query: { email, limit: 1 }, quiet: true });
  const contact = data?.data[0];
  return contact ? html`<${Button} icon="users" to=${`/contacts/${contact.id}`}>View contact<//>` : null;
}

function place(type, detail) {
  if (type === "attempted") return html` <span class="soft">at ${detail.mx ?? detail.to_domain}</span>`;
  return detail.recipient ? html` <span class="soft wrap">${breakable(detail.recipient)}</span>` : null;
}

/** One attempt: TLS in a line, and the conversation step by step, folded until asked for. */
function Attempt({ detail }) {
  const [open, setOpen] = useState(false);
  const steps = detail.conversation ?? [];
  const tls = detail.tls ? `${detail.tls.version}, ${detail.tls.cipher}, certificate ${detail.tls.certificate}` : detail.plaintext ? `not encrypted: ${detail.plaintext}` : null;
  return html`${tls && html`<p class="small soft encryption"><${Icon} name="lock" size=${12} /><span class="wrap">${tls}</span></p>`}
    ${steps.length > 0 && html`<div><button type="button" class="link-button small" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)}>${open ? "Hide" : "Show"} the SMTP conversation (${steps.length} steps, ${duration(attemptMs(steps))})</button></div>`}
    ${open && html`<div class="table-frame"><table class="table conversation"><thead><tr><th scope="col">Step</th><th scope="col">Server</th><th scope="col" class="end">Time</th></tr></thead>
      <tbody>${steps.map((step) => html`<tr><td>${stepName(step.step)}</td><td class="wrap"><code>${step.reply ?? step.to ?? [step.version, step.cipher, step.certificate].filter(Boolean).join(", ")}</code></td><td class="end">${duration(step.ms)}</td></tr>`)}</tbody></table></div>`}`;
}

/** Fields of the detail that have no place of their own, so that nothing recorded is hidden. */
function Rest({ detail }) {
  const entries = Object.entries(detail).filter(([name, value]) => !PLACED.has(name) && value !== null && value !== "");
  if (entries.length === 0) return null;
  const text = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  return html`<dl class="waybill-rest small">${entries.map(([name, value]) => html`<div><dt>${name.replaceAll("_", " ")}</dt><dd class="wrap">${text(value)}</dd></div>`)}</dl>`;
}
