// The card that erases the data of one recipient, and the receipts of past erasures.
import { call, usePages, whyNot } from "../core/api.js";
import { Button, Card, Chip, Confirm, Form, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { html, number, useState } from "../core/view.js";

const TONES = { completed: "good", running: "warn" };
const words = (kind) => kind.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
const total = (counts) => Object.entries(counts).map(([kind, count]) => `${number(count)} ${words(kind)}`).join(", ") || "nothing";

/** The card; people who may not erase see the reason. */
export function Erasures() {
  const why = whyNot("admin") ?? undefined;
  if (why) return html`<${Card} title="Erase a recipient"><p class="soft">${why}</p><//>`;
  return html`<${Receipts} />`;
}

function Receipts() {
  const state = usePages("GET /v1/erasures", {}, { pollMs: true, limit: 10 });
  const [address, setAddress] = useState("");
  const [asking, setAsking] = useState(null);
  const closed = (done) => {
    setAsking(null);
    if (!done) return;
    setAddress("");
    toast("Erasure requested");
    state.reload();
  };
  const columns = [
    { title: "Receipt", cell: (row) => html`<code>${row.id}</code>` },
    { title: "State", cell: (row) => html`<${Chip} tone=${TONES[row.state]}>${row.state}<//>` },
    { title: "Erased", cell: (row) => total(row.counts) },
    { title: "Requested", cell: (row) => html`<${Time} at=${row.requestedAt} />` },
    { title: "Finished", cell: (row) => (row.finishedAt ? html`<${Time} at=${row.finishedAt} />` : "–") },
  ];
  return html`<${Card} title="Erase a recipient"><div class="stack">
    <p>Erases one person's content and address everywhere in this account: messages, received email, contact, codes and log entries. A suppression is kept as a hash, so the address stays blocked.</p>
    <${Form} onSubmit=${() => address && setAsking(address.trim())}><${TextField} label="Address" type="email" required maxlength="320" autocomplete="off" value=${address} onValue=${setAddress} />
      <div class="form-actions"><${Button} type="submit" danger icon="trash-2" disabled=${!address}>Erase recipient<//></div><//>
    <${Table} label="Erasures" columns=${columns} state=${state} empty="No recipient has been erased yet." />
    ${asking && html`<${Confirm} title=${`Erase ${asking}?`} typed=${asking} confirm="Erase recipient" action=${() => call("POST /v1/erasures", { body: { address: asking } })} onClose=${closed}>
      <p>You can't undo this. Unsent messages to the address are canceled, including those with other recipients. The receipt doesn't show the address; note its id.</p><//>`}
  </div><//>`;
}
