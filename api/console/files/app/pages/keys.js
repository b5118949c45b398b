// API keys, and the settings for sending by SMTP and HTTP.
import { call, useAction, usePages } from "../core/api.js";
import { location, setQuery, useAskedForNew } from "../core/router.js";
import { Button, Chip, Confirm, Dialog, Empty, ErrorNote, Facts, fieldError, Form, Menu, PageHead, SecretDialog, SelectField, Tabs, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { ago, dateTime, html, serviceNow, useState } from "../core/view.js";
import { NewKey } from "../parts/key_form.js";
import { ALL_SCOPES, scopesInWords } from "../parts/scopes.js";

export { SmtpSettings } from "../parts/smtp_settings.js";

const FORMS = [["all", "All keys"], ["live", "Keys in use"], ["ended", "Revoked and expired"]];

/** Return the state of a key: active, revoked or expired. */
const standing = (key) => (key.revokedAt ? "revoked" : key.expiresAt && Date.parse(key.expiresAt) <= serviceNow() ? "expired" : "active");

export function ApiKeys() {
  const state = usePages("GET /v1/api-keys", {}, { pollMs: true });
  const shown = location.value.query.get("show") ?? "live";
  const [open, setOpen] = useState(null); // {kind, row}
  const [made, setMade] = useState(null); // the reply with the token
  useAskedForNew("admin", () => setOpen({ kind: "new" }));
  const close = (changed) => {
    setOpen(null);
    if (changed) state.reload();
  };
  const keep = (reply) => {
    setOpen(null);
    if (reply) {
      setMade(reply);
      state.reload();
    }
  };
  const create = html`<${Button} kind="primary" icon="plus" role="admin" onClick=${() => setOpen({ kind: "new" })}>Create key<//>`;
  const rows = state.rows.filter((row) => shown === "all" || (shown === "live") === (standing(row) === "active"));
  const other = state.rows.length > 0 && html`<${Empty} icon="key" title=${shown === "live" ? "No key is in use" : "No key was revoked or has expired"} action=${create}>${shown === "live" ? "All keys are revoked or expired. Create one to send." : "Keys stay listed here after they are revoked or expire."}<//>`;
  const empty = other || html`<${Empty} icon="key" title="No API keys" action=${create} curl=${`curl ${window.location.origin}/v1/me -H "Authorization: Bearer $KEY"`}>Your applications authenticate with a key. Create one per application with only the permissions it needs, so you can revoke it separately.<//>`;
  return html`<${PageHead} title="API keys" lead="Every application that uses the API or SMTP needs a key. A key is shown only once, when you create it." actions=${html`<${Button} icon="server" to="/smtp">Settings for sending<//>${create}`} />
    <${Tabs} label="Keys" items=${FORMS.slice(1).concat(FORMS.slice(0, 1))} current=${shown} onSelect=${(key) => setQuery({ show: key === "live" ? null : key })} />
    <${Table} label="API keys" columns=${columns(setOpen)} state=${{ ...state, rows }} empty=${empty} />
    ${open?.kind === "new" && html`<${NewKey} onClose=${keep} />`}
    ${open?.kind === "rename" && html`<${Rename} row=${open.row} onClose=${close} />`}
    ${open?.kind === "rotate" && html`<${Rotate} row=${open.row} onClose=${keep} />`}
    ${open?.kind === "scopes" && html`<${KeyFacts} row=${open.row} onClose=${() => close(false)} />`}
    ${open?.kind === "revoke" && html`<${Revoke} row=${open.row} onClose=${close} />`}
    ${made && html`<${Made} made=${made} onClose=${() => setMade(null)} />`}`;
}

function columns(setOpen) {
  const items = (row) => {
    const ended = standing(row) !== "active";
    return [
      { text: "Permissions", icon: "list", onSelect: () => setOpen({ kind: "scopes", row }) },
      !ended && { text: "Rename", icon: "pencil", onSelect: () => setOpen({ kind: "rename", row }) },
      !ended && !row.replacedBy && { text: "Rotate", icon: "rotate-ccw", onSelect: () => setOpen({ kind: "rotate", row }) },
      !ended && { text: "Revoke", icon: "ban", danger: true, onSelect: () => setOpen({ kind: "revoke", row }) },
    ];
  };
  return [
    { title: "Name", cell: (row) => html`<span><span class="strong wrap">${row.name}</span> <code class="soft">${row.hint}…</code></span>` },
    { title: "State", cell: (row) => html`<span class="row"><${Chip}>${standing(row)}<//>${row.replacedBy && standing(row) === "active" && html`<span class="soft small">replaced</span>`}</span>` },
    { title: "Permissions", cell: (row) => html`<button type="button" class="link-button" onClick=${() => setOpen({ kind: "scopes", row })}>${scopesInWords(row.scopes)}<span class="visually-hidden"> of ${row.name}</span></button>` },
    { title: "Limited to", cell: (row) => limits(row) },
    { title: "Last used", cell: (row) => (row.lastUsedAt ? html`<${Time} at=${row.lastUsedAt} relative />` : html`<span class="soft">never</span>`) },
    { title: "Expires", cell: (row) => (row.expiresAt ? html`<${Time} at=${row.expiresAt} relative />` : html`<span class="soft">never</span>`) },
    { title: "Created", cell: (row) => html`<${Time} at=${row.createdAt} relative />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.name}`} items=${items(row)} />` },
  ];
}

const LIMITS = [["domains", "domain"], ["streams", "stream"], ["networks", "network"]];

function limits(row) {
  const parts = LIMITS.filter(([field]) => row[field]).map(([field, word]) => (row[field].length === 1 ? row[field][0] : `${row[field].length} ${word}s`));
  if (row.agent?.recipients) parts.push(row.agent.recipients.length === 1 ? row.agent.recipients[0] : `${row.agent.recipients.length} recipients`);
  if (row.agent?.approval === "required") parts.push("sends with approval");
  return parts.length ? html`<span class="small wrap">${parts.join(", ")}</span>` : html`<span class="soft">–</span>`;
}

function KeyFacts({ row, onClose }) {
  const list = (values) => values && html`<span class="wrap">${values.join(", ")}</span>`;
  return html`<${Dialog} title=${`Key ${row.name}`} onClose=${onClose} foot=${html`<${Button} kind="primary" onClick=${onClose}>Close<//>`}>
    <${Facts} items=${[
      ["Id", html`<code>${row.id}</code>`],
      ["Begins with", html`<code>${row.hint}</code>`],
      ["Scopes", row.scopes.length === ALL_SCOPES.length ? "all" : html`<span class="mono">${row.scopes.join(", ")}</span>`],
      ["Domains", list(row.domains) ?? "all in the account"],
      ["Streams", list(row.streams) ?? "all in the account"],
      ["Networks", list(row.networks) ?? "from anywhere"],
      ["Recipients", list(row.agent?.recipients) ?? "any"],
      ["Approval", row.agent?.approval === "required" ? "a person approves each email" : "not required"],
      ["Web pages", list(row.allowedOrigins) ?? "none"],
      ["Created", html`<${Time} at=${row.createdAt} />`],
      ["Last used", row.lastUsedAt ? html`<${Time} at=${row.lastUsedAt} />` : "never"],
      ["Expires", row.expiresAt ? html`<${Time} at=${row.expiresAt} />` : "never"],
      row.revokedAt && ["Revoked", html`<${Time} at=${row.revokedAt} />`],
      row.replacedBy && ["Replaced by", html`<code>${row.replacedBy}</code>`],
    ]} />
    <p class="soft small">You can't change a key's scopes or limits. Create another key instead.</p>
  <//>`;
}

function Rename({ row, onClose }) {
  const [name, setName] = useState(row.name);
  const [save, { busy, error }] = useAction(() => call("PATCH /v1/api-keys/{id}", { path: { id: row.id }, body: { name } }));
  const submit = async () => {
    if ((await save()) !== undefined) {
      toast(`Key renamed to ${name}`);
      onClose(true);
    }
  };
  return html`<${Dialog} title=${`Rename the key ${row.name}`} onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" role="admin" busy=${busy} onClick=${submit}>Rename key<//>`}>
    <${Form} onSubmit=${submit}><${TextField} label="Name" required autofocus maxlength="120" value=${name} onValue=${setName} error=${fieldError(error, "name")} /><${ErrorNote} error=${error} fields=${["name"]} /><//>
  <//>`;
}

const OVERLAPS = [[0, "None: revoke the old key now"], [1, "1 hour"], [24, "1 day"], [72, "3 days"], [168, "7 days"]];

function Rotate({ row, onClose }) {
  const [hours, setHours] = useState(24);
  const [rotate, { busy, error }] = useAction(() => call("POST /v1/api-keys/{id}/rotate", { path: { id: row.id }, body: { overlapHours: Number(hours) } }));
  const submit = async () => {
    const reply = await rotate();
    if (reply !== undefined) onClose(reply);
  };
  return html`<${Dialog} title=${`Rotate the key ${row.name}`} onClose=${() => onClose(null)} foot=${html`<${Button} onClick=${() => onClose(null)}>Cancel<//><${Button} kind="primary" role="admin" busy=${busy} onClick=${submit}>Rotate key<//>`}>
    <p>You get a new key with the same name, scopes, limits and expiry. Both keys work during the overlap; then the old one expires automatically. You can revoke it earlier.</p>
    <${SelectField} label="Overlap" value=${hours} onValue=${setHours} options=${OVERLAPS} error=${fieldError(error, "overlapHours")} />
    <${ErrorNote} error=${error} fields=${["overlapHours"]} />
  <//>`;
}

function Revoke({ row, onClose }) {
  const used = row.lastUsedAt ? html`It was last used <strong>${ago(row.lastUsedAt)}</strong> (${dateTime(row.lastUsedAt)}).` : "It was never used.";
  const done = (revoked) => {
    if (revoked) toast(`Key ${row.name} revoked`);
    onClose(revoked);
  };
  return html`<${Confirm} title=${`Revoke the key ${row.name}?`} confirm="Revoke key" action=${() => call("DELETE /v1/api-keys/{id}", { path: { id: row.id } })} onClose=${done}>
    <p>${used} Applications that use <code>${row.hint}…</code> are rejected within a second, by the API and by SMTP. You can't restore a revoked key. To change keys without downtime, rotate it.</p>
  <//>`;
}

/** The new key, once, with the first call to try it. */
function Made({ made, onClose }) {
  const old = made.replaces;
  return html`<${SecretDialog} title=${`Key ${made.name}`} secret=${made.token} onClose=${onClose}>
    ${old && html`<p>The old key <code>${old.hint}…</code> ${Date.parse(old.expiresAt) <= serviceNow() ? "has ended" : html`is valid until <${Time} at=${old.expiresAt} />`}.</p>`}
    <p class="soft">Store it in an environment variable or a secret store. The samples on these pages read it from <code>$KEY</code>. For SMTP, use it as the password of the user <code>apikey</code>.</p>
    <p><${Button} kind="quiet" icon="server" to="/smtp">Settings for sending<//></p>
  <//>`;
}
