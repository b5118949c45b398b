// Publishing the records of a domain through Cloudflare.
import { call, useAction } from "../core/api.js";
import { Button, CheckField, Chip, Confirm, Dialog, ErrorNote, fieldError, Form, Notice, TextField, toast } from "../core/ui.js";
import { html, useState } from "../core/view.js";

const OUTCOME_TONES = { created: "good", updated: "good", unchanged: "", conflict: "bad", failed: "bad" };

/** The dialog that takes a token, publishes the records, and shows the result of each. */
export function CloudflareDialog({ domain, onClose }) {
  const [token, setToken] = useState("");
  const [stored, setStored] = useState(false);
  const [reply, setReply] = useState(null);
  const [forgetting, setForgetting] = useState(false);
  const [publish, { busy, error }] = useAction(() => call("POST /v1/domains/{id}/cloudflare", { path: { id: domain.id }, body: stored ? {} : { token: token.trim() }, quiet: true, timeoutMs: 60_000 }));
  const submit = async () => {
    const done = await publish();
    setToken(""); // the browser keeps it no longer than needed
    if (done !== undefined) setReply(done);
  };
  if (forgetting) {
    return html`<${Confirm} title="Delete the stored Cloudflare token?" confirm="Delete token" action=${() => call("DELETE /v1/account/cloudflare")} onClose=${(done) => { setForgetting(false); if (done) { toast("Cloudflare token deleted"); onClose(); } }}>Published records stay, but can't be updated automatically any more.<//>`;
  }
  const foot = reply ? html`<${Button} onClick=${() => setForgetting(true)}>Delete the stored token<//><${Button} kind="primary" onClick=${onClose}>Done<//>` : html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} disabled=${!stored && !token.trim()} onClick=${submit}>Publish records<//>`;
  return html`<${Dialog} title=${`Publish the records of ${domain.name}`} wide=${Boolean(reply)} onClose=${onClose} foot=${foot}>
    ${reply ? html`<${Published} reply=${reply} />` : html`<${Form} onSubmit=${submit}>
      <p>Create a token at Cloudflare with the permissions <strong>Zone: Read</strong> and <strong>DNS: Edit</strong> for the zone. Other records in the zone are left unchanged.</p>
      <${CheckField} label="Use the stored token" hint="Saved when this account last published records." checked=${stored} onChecked=${setStored} />
      ${!stored && html`<${TextField} label="Cloudflare API token" type="password" autocomplete="off" spellcheck=${false} value=${token} onValue=${setToken} error=${fieldError(error, "token")} hint="Stored encrypted for later key rotations. You can delete it at any time." />`}
      <${ErrorNote} error=${error} fields=${stored ? [] : ["token"]} />
      <div><${Button} kind="quiet" icon="trash-2" onClick=${() => setForgetting(true)}>Delete the stored token<//></div>
    <//>`}
  <//>`;
}

function Published({ reply }) {
  return html`<${Notice} tone="good">Records compared with the zone ${reply.zone}.<//>
    <ul class="domain-records">${reply.records.map((one) => html`<li class="domain-record" key=${`${one.type} ${one.host}`}><div class="row"><strong>${one.type}</strong><code class="wrap">${one.host}</code><${Chip} tone=${OUTCOME_TONES[one.outcome] ?? ""}>${one.outcome}<//></div>${one.reason && html`<p class="small">${one.reason}</p>`}</li>`)}</ul>`;
}
