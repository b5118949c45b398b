// Sending a broadcast: what to look at before, the number of people, now or later.
import { call, useAction, useCall } from "../core/api.js";
import { Button, Dialog, ErrorNote, Facts, fieldError, Form, Icon, Segments, Skeleton, TextField, toast } from "../core/ui.js";
import { duration, html, instant, number, plural, useState, zone } from "../core/view.js";
import { findings } from "./checks.js";

const REVIEWED_ABOVE = 1000; // recipients of 24 hours, until the operator has approved a broadcast of the account
const STARTED = { in_review: "It waits for review", scheduled: "Scheduled", sending: "It is being sent" };

/** Return findings [{tone, text}] on a broadcast that is about to be sent: `sample` is its preview, `me` the account. */
export function sendingNotes(broadcast, sample, me) {
  const people = sample.recipients;
  const notes = [];
  const own = `${broadcast.html ?? ""}${broadcast.text ?? ""}`.includes("{{unsubscribe_url}}");
  notes.push(["good", own || broadcast.template ? "Each message has an unsubscribe link and the one-click header." : "A footer with the unsubscribe link is added, and the one-click header."]);
  if (people === 0) notes.push(["bad", "Nobody is in the audience now."]);
  if (people === null) notes.push(["warn", "The segment takes too long to count; it is counted when the broadcast starts."]);
  if (people > REVIEWED_ABOVE) notes.push(["warn", `Broadcasts to more than ${number(REVIEWED_ABOVE)} people in 24 hours wait for the operator's review, until one of the account was approved.`]);
  if (me && people > me.sending.remainingToday) notes.push(["warn", `The account may send ${plural(me.sending.remainingToday, "more message")} today. The broadcast pauses there and goes on after midnight UTC.`]);
  if (me && people > me.sending.remainingThisMonth) notes.push(["bad", `The plan leaves ${plural(me.sending.remainingThisMonth, "message")} this month. The broadcast pauses there until the 1st, or until the plan is larger.`]);
  const content = findings({ subject: sample.subject, html: sample.html ?? "", text: sample.text ?? "", sizeBytes: 0 });
  return [...notes.map(([tone, text]) => ({ tone, text })), ...content.filter((one) => one.tone !== "good")];
}

/** Ask whether to send `broadcast`, with the number of people and what to look at. */
export function SendDialog({ broadcast, onClose }) {
  const scheduled = broadcast.status === "scheduled";
  const [when, setWhen] = useState(scheduled ? "later" : "now");
  const [at, setAt] = useState("");
  const sample = useCall("GET /v1/broadcasts/{id}/preview", { path: { id: broadcast.id }, quiet: true });
  const me = useCall("GET /v1/me", { quiet: true });
  const later = when === "later";
  const [send, { busy, error }] = useAction(() => call("POST /v1/broadcasts/{id}/send", { path: { id: broadcast.id }, body: later ? { scheduledAt: instant(at) } : {} }));
  const submit = async () => {
    const reply = await send();
    if (!reply) return;
    toast(STARTED[reply.status] ?? "It is being sent");
    onClose(true);
  };
  const people = sample.data?.recipients ?? null;
  const whom = people === null ? "" : ` to ${plural(people, "person", "people")}`;
  const why = !sample.data && !sample.error ? "The audience is being counted." : later && !at ? "Choose a time." : null;
  const foot = html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" icon="send" role="member" busy=${busy} why=${why} onClick=${submit}>${later ? (scheduled ? "Change the time" : "Schedule") : `Send${whom}`}<//>`;
  return html`<${Dialog} title=${scheduled ? `When to send ${broadcast.name}` : `Send ${broadcast.name}${whom}?`} onClose=${() => onClose(false)} foot=${foot}>
    ${!sample.data && !sample.error && html`<${Skeleton} lines=${3} />`}
    <${ErrorNote} error=${sample.error} retry=${sample.reload} />
    ${sample.data && html`<${Facts} items=${[["Subject", sample.data.subject || "(empty)"], ["From", broadcast.from], ["People", people === null ? "counted at the start" : html`${plural(people, "contact")} now. Contacts in the audience when it starts get it; suppressed, unconfirmed and unsubscribed addresses are skipped.`], broadcast.perMinute && people !== null && ["Takes", `about ${duration((people / broadcast.perMinute) * 60_000)} at ${number(broadcast.perMinute)} a minute`]]} />
      <ul class="stack-tight">${sendingNotes(broadcast, sample.data, me.data).map((one) => html`<li class="row"><span class=${one.tone}><${Icon} name=${one.tone === "good" ? "circle-check" : "triangle-alert"} /></span><span class="grow">${one.text}</span></li>`)}</ul>`}
    <div class="row"><${Segments} label="When" options=${[["now", "Now"], ["later", "Later"]]} value=${when} onValue=${setWhen} /></div>
    ${later && html`<${Form} onSubmit=${submit}><${TextField} label="Start at" type="datetime-local" required value=${at} onValue=${setAt} error=${fieldError(error, "scheduledAt")} hint=${`Your time zone: ${zone.value}.`} /><//>`}
    <${ErrorNote} error=${error} fields=${["scheduledAt"]} />
  <//>`;
}
