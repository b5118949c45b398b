// Mail a test of a template or broadcast to people of the team.
import { session, useAction, useCall } from "../core/api.js";
import { href } from "../core/router.js";
import { Button, CheckField, Dialog, ErrorNote, fieldError, Form, Notice } from "../core/ui.js";
import { html, plural, useState } from "../core/view.js";
import { SendChecks } from "./send_checks.js";
import { SenderField } from "./sender_field.js";

const MAX_PEOPLE = 5;

/**
 * A dialog that mails a test. `send({to, from})` is an async function that returns the reply of the operation;
 * `sender` asks for a From address; `foresee({to, from})`, if given, returns a dry run whose checks can be shown first;
 * `next` is {text, onSelect} of what can follow a test; children appear above the people.
 */
export function TestDialog({ title, send, foresee = null, sender = false, why = null, next = null, onClose, children }) {
  const team = useCall("GET /v1/team", { quiet: true }, { whole: "members" });
  const [to, setTo] = useState([session.value.user.email]);
  const [from, setFrom] = useState("");
  const [sent, setSent] = useState(null);
  const [run, { busy, error }] = useAction(() => send({ to, from }));
  const [check, checking] = useAction(() => foresee({ to, from }));
  const [checks, setChecks] = useState(null);
  const people = team.data?.members.map((one) => one.email) ?? [session.value.user.email];
  const toggle = (email, on) => setTo(on ? [...to, email] : to.filter((one) => one !== email));
  const problem = to.length === 0 ? "Choose at least one person." : to.length > MAX_PEOPLE ? `A test goes to at most ${MAX_PEOPLE} people.` : null;
  const unready = sender && !from ? "Enter a sender first." : null; // the field fills itself in once the domains are read
  const submit = async () => {
    const reply = await run();
    if (reply) setSent(reply.data);
  };
  const look = async () => setChecks((await check())?.checks ?? null);
  const foot = html`<${Button} onClick=${onClose}>${sent ? "Close" : "Cancel"}<//>${sent && next && html`<${Button} kind="primary" icon="send" role="member" onClick=${next.onSelect}>${next.text}<//>`}${!sent && foresee && html`<${Button} icon="shield-check" role="member" busy=${checking.busy} why=${why ?? problem ?? unready} onClick=${look}>Check it<//>`}${!sent && html`<${Button} kind="primary" icon="send" role="member" busy=${busy} why=${why ?? problem ?? unready} onClick=${submit}>Send the test to ${plural(to.length, "person", "people")}<//>`}`;
  return html`<${Dialog} title=${title} onClose=${onClose} foot=${foot}>
    ${sent ? html`<${Sent} rows=${sent} />` : html`<${Form} onSubmit=${submit}>
      ${children}
      ${sender && html`<${SenderField} value=${from} onValue=${setFrom} error=${fieldError(error, "from")} />`}
      <fieldset class="stack-tight"><legend class="strong">To</legend>${people.map((email) => html`<${CheckField} key=${email} label=${email} checked=${to.includes(email)} onChecked=${(on) => toggle(email, on)} />`)}
        <span class="hint">Only members of your team. The subject starts with [Test], and each message counts as a send.</span></fieldset>
      ${problem && html`<${Notice} tone="warn">${problem}<//>`}
      <${ErrorNote} error=${error ?? checking.error} fields=${sender ? ["from"] : []} />
      ${checks && html`<${SendChecks} checks=${checks} />`}
    <//>`}
  <//>`;
}

function Sent({ rows }) {
  return html`<ul class="stack-tight" role="status">${rows.map((one) => html`<li>${one.to}: ${one.id ? html`accepted, <a href=${href(`/messages/${one.id}`)}>see its waybill</a>` : html`<span class="bad">refused: ${one.error?.message ?? one.status}</span>`}</li>`)}</ul>`;
}
