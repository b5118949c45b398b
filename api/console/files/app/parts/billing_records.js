// Invoices and the history of billing, with the verification of its chain.
import { download, useAction, usePages } from "../core/api.js";
import { Button, Chip, Code, Dialog, Empty, Facts, Notice, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { date, html, money, useState } from "../core/view.js";

/** The list of invoices and credit notes. */
export function Invoices() {
  const state = usePages("GET /v1/billing/invoices");
  const columns = [
    { title: "Number", cell: (row) => html`<span class="row"><span class="strong numeric">${row.number}</span>${row.kind === "credit_note" && html`<${Chip} tone="warn">credit note<//>`}</span>${row.corrects && html`<span class="small soft">corrects ${row.corrects}</span>`}` },
    { title: "Issued", cell: (row) => html`<${Time} at=${row.issuedAt} />` },
    { title: "For", cell: (row) => html`<span>${row.plan}, ${date(row.periodStart)} to ${date(row.periodEnd)}</span>` },
    { title: "Status", cell: (row) => html`<${Chip}>${row.status}<//>` },
    { title: "Tax", end: true, cell: (row) => html`<span class="numeric">${row.reverseCharge ? "reverse charge" : money(row.tax, row.currency)}</span>` },
    { title: "Total", end: true, cell: (row) => html`<span class="numeric strong">${money(row.total, row.currency)}</span>` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Pdf} row=${row} />` },
  ];
  const empty = html`<${Empty} icon="file-text" title="No invoices yet">Every payment creates an invoice, which you can download here as a PDF.<//>`;
  return html`<${Table} label="Invoices" columns=${columns} state=${state} empty=${empty} />`;
}

function Pdf({ row }) {
  const [save, { busy }] = useAction(async () => {
    try {
      await download("GET /v1/billing/invoices/{id}", { path: { id: row.id }, accept: "application/pdf" }, `${row.number}.pdf`);
    } catch (refusal) {
      if (!refusal.type) throw refusal;
      toast(refusal.message, { tone: "bad" });
    }
  });
  return html`<${Button} icon="download" busy=${busy} onClick=${save} aria-label=${`Download ${row.number} as PDF`}>PDF<//>`;
}

/** The history of billing, oldest first, and whether its chain of hashes holds. */
export function BillingHistory() {
  const state = usePages("GET /v1/billing/history", {}, { cursorField: "after", limit: 100 });
  const [opened, setOpened] = useState(null);
  const chain = state.first?.chain;
  const columns = [
    { title: "Event", cell: (row) => html`<span class="strong wrap">${row.type}</span>` },
    { title: "No.", end: true, cell: (row) => html`<span class="numeric">${row.seq}</span>` },
    { title: "Time", cell: (row) => html`<${Time} at=${row.occurredAt} />` },
    { title: "Actions", hideTitle: true, button: true, end: true, cell: (row) => html`<${Button} onClick=${() => setOpened(row)} aria-label=${`Details of event ${row.seq}`}>Details<//>` },
  ];
  return html`<div class="stack">
    ${chain && (chain.valid ? state.rows.length > 0 && html`<${Notice} tone="good" title="The history is intact.">Each event contains the hash of the previous one. All were verified when this page loaded.<//>` : html`<${Notice} tone="bad" title=${`The history is broken at event ${chain.brokenAt}.`}>${chain.reason}<//>`)}
    <${Table} label="Billing history" columns=${columns} state=${state} rowKey=${(row) => row.seq} empty=${html`<${Empty} icon="scroll-text" title="Nothing has happened yet">Checkouts, payments, invoices and subscription changes are recorded here and kept for ten years.<//>`} />
    ${opened && html`<${Dialog} title=${`Event ${opened.seq}: ${opened.type}`} wide onClose=${() => setOpened(null)}><${Code} text=${pretty(opened.payload)} label="Payload" />
      <${Facts} items=${[["Hash", html`<span class="mono">${opened.hash}</span>`], ["Previous hash", html`<span class="mono">${opened.prevHash}</span>`]]} /><//>`}</div>`;
}

/** Return JSON text indented; other text as it is. */
export function pretty(payload) {
  try {
    return JSON.stringify(JSON.parse(payload), null, 2);
  } catch {
    return payload ?? "";
  }
}
