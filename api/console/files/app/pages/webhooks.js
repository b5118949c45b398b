// Webhooks: endpoints, and the workbench of one endpoint.
import { usePages } from "../core/api.js";
import { go, useAskedForNew } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Empty, Menu, PageHead, SecretDialog } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, shortUrl, useState } from "../core/view.js";
import { shellWord } from "../parts/snippets.js";
import { DeleteEndpoint, EndpointForm, RotateSecret, TestButton, typesInWords } from "../parts/webhook_form.js";
import { HealthChip, LastResponse, successShare } from "../parts/webhook_health.js";
import { filtersInWords } from "../parts/webhook_options.js";

const loadChecker = () => import("../parts/signature_checker.js");

export function Webhooks() {
  const state = usePages("GET /v1/webhooks", {}, { pollMs: true });
  const [open, setOpen] = useState(null); // {kind, row}
  const [made, setMade] = useState(null);
  useAskedForNew("member", () => setOpen({ kind: "new" }));
  const close = (changed) => {
    setOpen(null);
    if (changed) state.reload({ keep: true });
  };
  const created = (reply) => {
    setOpen(null);
    if (reply) setMade(reply);
  };
  const add = html`<${Button} kind="primary" icon="plus" role="member" onClick=${() => setOpen({ kind: "new" })}>Add endpoint<//>`;
  const { origin } = window.location;
  const curl = `curl ${origin}/v1/webhooks \\\n  -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\\n  -d ${shellWord('{"url": "https://example.com/hooks", "eventTypes": ["delivered", "bounced"]}')}`;
  const empty = html`<${Empty} icon="webhook" title="No webhook endpoints" action=${add} curl=${curl}>Get an HTTP POST at your URL for each delivery, bounce, complaint or received message. Every post is signed and retried for up to 22 hours until your server responds with 2xx.<//>`;
  return html`<${PageHead} title="Webhooks" lead="Events are posted to your endpoints within seconds and signed. Failed posts are retried for up to 22 hours." actions=${html`<${Button} icon="shield-check" onClick=${() => setOpen({ kind: "check" })}>Check a signature<//>${add}`} />
    <${Table} label="Webhook endpoints" columns=${columns(setOpen)} state=${state} rowTo=${(row) => `/webhooks/${row.id}`} empty=${empty} />
    ${open?.kind === "new" && html`<${EndpointForm} onClose=${created} />`}
    ${open?.kind === "edit" && html`<${EndpointForm} row=${open.row} onClose=${close} />`}
    ${open?.kind === "rotate" && html`<${RotateSecret} row=${open.row} onClose=${() => close(false)} />`}
    ${open?.kind === "delete" && html`<${DeleteEndpoint} row=${open.row} onClose=${close} />`}
    ${open?.kind === "check" && html`<${Lazy} load=${loadChecker} name="SignatureChecker" onClose=${() => close(false)} />`}
    ${made && html`<${SecretDialog} title="Signing secret" secret=${made.signingSecret} onClose=${() => { setMade(null); go(`/webhooks/${made.id}`); }}>
      <p>Your application verifies <code>Service-Signature</code> with it. The key is the whole secret, <code>whsec_</code> included. If you lose it, rotate it.</p><//>`}`;
}

function columns(setOpen) {
  const items = (row) => [
    { text: "Edit", icon: "pencil", onSelect: () => setOpen({ kind: "edit", row }) },
    { text: "Rotate the secret", icon: "rotate-ccw", onSelect: () => setOpen({ kind: "rotate", row }) },
    { text: "Delete", icon: "trash-2", danger: true, onSelect: () => setOpen({ kind: "delete", row }) },
  ];
  return [
    { title: "URL", cell: (row) => html`<span class="cut url" title=${row.url}>${shortUrl(row.url, 56)}</span>${row.description && html`<div class="small soft wrap">${row.description}</div>`}` },
    { title: "Events", cell: (row) => html`<span title=${row.eventTypes.join(", ")}>${typesInWords(row.eventTypes)}</span>${filtersInWords(row) && html`<div class="small soft wrap">${filtersInWords(row)}</div>`}` },
    { title: "State", narrow: "bare", cell: (row) => html`<${HealthChip} health=${row.health} />` },
    { title: "Delivered, 24 h", end: true, cell: (row) => successShare(row.health) },
    { title: "Last response", cell: (row) => html`<${LastResponse} last=${row.health.lastResponse} />` },
    { title: "Test", hideTitle: true, button: true, end: true, cell: (row) => html`<${TestButton} row=${row} />` },
    { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Menu} label=${`Actions of ${row.url}`} items=${items(row)} />` },
  ];
}
