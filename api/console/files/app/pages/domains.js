// Domains: the domains that an account sends from, and the set-up of one.
import { call, useAction, usePages } from "../core/api.js";
import { go, useAskedForNew } from "../core/router.js";
import { Button, Chip, Dialog, Empty, ErrorNote, fieldError, Form, PageHead, TextField, Time } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, useState } from "../core/view.js";
import { shellWord } from "../parts/snippets.js";

export { Domain } from "../parts/domain_setup.js";

export function Domains() {
  const state = usePages("GET /v1/domains", {}, { pollMs: true });
  const [adding, setAdding] = useState(false);
  useAskedForNew("member", () => setAdding(true));
  const add = html`<${Button} kind="primary" icon="plus" role="member" onClick=${() => setAdding(true)}>Add domain<//>`;
  const columns = [
    { title: "Domain", cell: (row) => row.name },
    { title: "Status", cell: (row) => html`<${Chip}>${row.status}<//>` },
    { title: "Records found", cell: (row) => html`<${RecordCount} records=${row.records} />` },
    { title: "Own return path", cell: (row) => html`<${Chip}>${row.returnPath.status}<//>` },
    { title: "Last check", cell: (row) => html`<${Time} at=${row.lastCheckedAt} relative />` },
    { title: "Added", cell: (row) => html`<${Time} at=${row.createdAt} />` },
  ];
  const empty = html`<${Empty} icon="globe" title="No domains yet" action=${add} curl=${curlToAdd("example.com")}>You send from addresses at your own domain. Add it and publish one DNS record, so mailbox providers can verify your email.<//>`;
  return html`<${PageHead} title="Domains" lead="The domains you send from. One DNS record is required, its signing key; the others improve delivery." actions=${add} />
    <${Table} label="Domains" columns=${columns} state=${state} rowTo=${(row) => `/domains/${row.id}`} empty=${empty} />
    ${adding && html`<${AddDomain} onClose=${() => setAdding(false)} />`}`;
}

function curlToAdd(name) {
  const { origin } = window.location;
  return `curl ${origin}/v1/domains \\\n  -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d ${shellWord(JSON.stringify({ name }))}`;
}

function RecordCount({ records }) {
  const found = records.filter((one) => one.status === "ok").length;
  const wrong = records.filter((one) => one.status === "mismatch").length;
  return html`<span class="numeric">${found} of ${records.length}</span>${wrong > 0 && html` <span class="bad">(${wrong} wrong)</span>`}`;
}

function AddDomain({ onClose }) {
  const [name, setName] = useState("");
  const [label, setLabel] = useState("bounce");
  const [add, { busy, error }] = useAction(() => call("POST /v1/domains", { body: { name: name.trim(), returnPathLabel: label.trim() || "bounce" } }));
  const submit = async () => {
    const made = await add();
    if (made !== undefined) go(`/domains/${made.id}`);
  };
  return html`<${Dialog} title="Add a domain" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Add domain<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Domain" required autofocus placeholder="example.com" autocapitalize="none" spellcheck=${false} value=${name} onValue=${setName} error=${fieldError(error, "name")} hint="The part after @ in your sender addresses. A subdomain such as mail.example.com keeps this email separate from your team's mailboxes." />
      <${TextField} label="Return path label" value=${label} onValue=${setLabel} error=${fieldError(error, "returnPathLabel")} hint=${`Bounces go to ${label.trim() || "bounce"}.${name.trim() || "example.com"} once its record is published. Change it only if that name is already in use.`} />
      <${ErrorNote} error=${error} fields=${["name", "returnPathLabel"]} />
    <//>
    <div class="soft"><h3>What happens next</h3><ol class="numbered small">
      <li>You get the DNS records. Only one is required: the public part of a new signing key.</li>
      <li>You publish them at your DNS provider, by hand or with one click at Cloudflare.</li>
      <li>The page checks automatically, usually finds them within minutes, and the domain can send.</li></ol></div>
  <//>`;
}
