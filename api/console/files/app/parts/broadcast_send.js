// Sending a broadcast: what to look at before, the number of people, now or later.
import { call, useAction, useCall } from "../core/api.js";
import { Button, Dialog, ErrorNote, Facts, fieldError, Form, Icon, Segments, Skeleton, TextField, toast } from "../core/ui.js";
import { duration, html, instant, number, plural, useState, zone } from "../core/view.js";
import { findings } from "./checks.js";
import { SendChecks } from "./send_checks.js";

const REVIEWED_ABOVE = 1000; // recipients of 24 hours, until the operator has approved a broadcast of the account
const STARTED = { in_review: "Waiting for review", scheduled: "Scheduled", sending: "Sending" };

/** Return findings [{tone, text}] on a broadcast that is about to be sent: `sample` is its preview, `me` the account. */
export function sendingNotes(broadcast, sample, me) {
  const people = sample.recipients;
  const notes = [];
  const own = `${broadcast.html ?? ""}${broadcast.text ?? ""}`.includes("{{unsubscribe_url}}");
  notes.push(["good", own || broadcast.template ? "Each message has an unsubscribe link and the one-click unsubscribe header." : "A footer with an unsubscribe link and the one-click unsubscribe header are added."]);
  if (people === 0) notes.push(["bad", "The audience is empty right now."]);
  if (people === null) notes.push(["warn", "Counting the segment takes too long. It is counted when the broadcast starts."]);
  if (people > REVIEWED_ABOVE) notes.push(["warn", `Until your first one is approved, the operator reviews broadcasts to more than ${number(REVIEWED_ABOVE)} people in 24 hours.`]);
  if (me && people > me.sending.remainingToday) notes.push(["warn", `You can send ${plural(me.sending.remainingToday, "more message")} today. Then the broadcast pauses and resumes after midnight UTC.`]);
  if (me && people > me.sending.remainingThisMonth) notes.push(["bad", `You have ${plural(me.sending.remainingThisMonth, "message")} left this month. Then the broadcast pauses until the 1st, or until you upgrade.`]);
  const content = findings({ subject: sample.subject, html: sample.html ?? "", text: sample.text ?? "", sizeBytes: 0 });
  return [...notes.map(([tone, text]) => ({ tone, text })), ...content.filter((one) => one.tone !== "good")];
}

/** Ask whether to send `broadcast`, with the number of people and what to look at. */
export function SendDialog({ broadcast, onClose }) {
  const scheduled = broadcast.status === "scheduled";
  const [when, setWhen] = useState(scheduled ? "later" : "now");
  const [at, setAt] = useState("");
  const sample = useCall("GET /v1/broadcasts/{id}/preview", { path: { id: broadcast.id }, quiet: true });
  const checks = useCall("GET /v1/broadcasts/{id}/checks", { path: { id: broadcast.id }, quiet: true });
  const me = useCall("GET /v1/me", { quiet: true });
  const later = when === "later";
  const [send, { busy, error }] = useAction(() => call("POST /v1/broadcasts/{id}/send", { path: { id: broadcast.id }, body: later ? { scheduledAt: instant(at) } : {} }));
  const submit = async () => {
    const reply = await send();
    if (!reply) return;
    toast(STARTED[reply.status] ?? "Sending");
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
      <ul class="stack-tight">${sendingNotes(broadcast, sample.data, me.data).map((one) => html`<li class="row"><span class=${one.tone}><${Icon} name=${one.tone === "good" ? "circle-check" : "triangle-alert"} /></span><span class="grow">${one.text}</span></li>`)}</ul>
      <${SendChecks} checks=${checks.data} error=${checks.error} />`}
    <div class="row"><${Segments} label="When" options=${[["now", "Now"], ["later", "Later"]]} value=${when} onValue=${setWhen} /></div>
    ${later && html`<${Form} onSubmit=${submit}><${TextField} label="Start at" type="datetime-local" required value=${at} onValue=${setAt} error=${fieldError(error, "scheduledAt")} hint=${`Your time zone: ${zone.value}.`} /><//>`}
    <${ErrorNote} error=${error} fields=${["scheduledAt"]} />
  <//>`;
}
