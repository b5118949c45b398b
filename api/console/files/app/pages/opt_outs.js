// People who opted out of one list: broadcasts to the list leave them out.
import { call, download, useAction, useCall, usePages } from "../core/api.js";
import { breakable, Button, Chip, Confirm, Dialog, Empty, ErrorNote, Field, fieldError, Form, Menu, PageHead, TextField, Time, toast } from "../core/ui.js";
import { Table } from "../core/table.js";
import { bytes, html, number, useState } from "../core/view.js";
import { FileResult } from "../parts/suppression_file.js";

const MAX_FILE_BYTES = 4_000_000; // of one request
const SOURCES = { link: "unsubscribe link", api: "recorded by you" };

export function OptOuts({ id }) {
  const list = useCall("GET /v1/lists/{id}", { path: { id } });
  const state = usePages("GET /v1/lists/{id}/opt-outs", { path: { id } }, { pollMs: true });
  const [open, setOpen] = useState(null); // "add", "file", or a row to take back
  const name = list.data?.name ?? "the list";
  const back = [`/lists/${id}`, list.data?.name ?? "List"];
  const close = (done) => {
    setOpen(null);
    if (done) state.reload();
  };
  const save = (format) => download("GET /v1/lists/{id}/opt-outs/export", { path: { id }, query: { format } }, `opt-outs.${format}`).catch((error) => toast(error.message, { tone: "bad" }));
  const add = html`<${Button} kind="primary" icon="plus" role="member" onClick=${() => setOpen("add")}>Add opt-out<//>`;
  const actions = html`<${Menu} label="Export" text="Export" kind="plain" items=${[["csv", "CSV"], ["ndjson", "NDJSON, one opt-out per line"]].map(([format, text]) => ({ text, icon: "download", onSelect: () => save(format) }))} />
    <${Button} icon="upload" role="member" onClick=${() => setOpen("file")}>Import file<//>${add}`;
  if (list.error) return html`<${PageHead} title="Opt-outs" back=${["/lists", "Lists and segments"]} /><${ErrorNote} error=${list.error} retry=${list.reload} />`;
  return html`<${PageHead} title="Opt-outs" lead=${`People whom broadcasts to ${name} leave out. All other mail reaches them.`} back=${back} actions=${actions} />
    <${Table} label="Opt-outs" columns=${columns(setOpen)} state=${state} rowKey=${(row) => row.address}
      empty=${html`<${Empty} icon="ban" title="Nobody has opted out" action=${add}>People who leave this list through a broadcast's link appear here. Import the opt-outs of your previous service before you send.<//>`} />
    ${open === "add" && html`<${AddOptOut} id=${id} onClose=${close} />`}
    ${open === "file" && html`<${OptOutFile} id=${id} onClose=${close} />`}
    ${open?.address && html`<${TakeBack} id=${id} name=${name} row=${open} onClose=${close} />`}`;
}

const columns = (onTakeBack) => [
  { title: "Address", cell: (row) => html`<span class="strong wrap address">${breakable(row.address)}</span>` },
  { title: "Source", cell: (row) => html`<${Chip}>${SOURCES[row.source] ?? row.source}<//>` },
  { title: "Added", cell: (row) => html`<${Time} at=${row.createdAt} />` },
  { title: "Actions", hideTitle: true, end: true, cell: (row) => html`<${Button} kind="quiet" icon="x" role="member" label=${`Remove the opt-out of ${row.address}`} onClick=${() => onTakeBack(row)} />` },
];

function AddOptOut({ id, onClose }) {
  const [address, setAddress] = useState("");
  const [add, { busy, error }] = useAction(() => call("POST /v1/lists/{id}/opt-outs", { path: { id }, body: { addresses: [address.trim()] } }));
  const [refused, setRefused] = useState(null);
  const submit = async () => {
    const reply = await add();
    if (reply === undefined) return;
    if (reply.refused.length) {
      setRefused(reply.refused[0].error.message);
      return;
    }
    toast(reply.added ? `${address.trim()} gets no more broadcasts to this list` : `${address.trim()} had already opted out`);
    onClose(true);
  };
  return html`<${Dialog} title="Add opt-out" onClose=${() => onClose(false)} foot=${html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Add<//>`}>
    <${Form} onSubmit=${submit}><${TextField} label="Address" type="email" required autofocus value=${address} onValue=${(text) => { setAddress(text); setRefused(null); }} error=${refused ?? fieldError(error, "addresses[0]")} hint="Someone who asked to get no more broadcasts to this list." />
      <${ErrorNote} error=${error} fields=${["addresses[0]"]} /><//><//>`;
}

function OptOutFile({ id, onClose }) {
  const [file, setFile] = useState(null);
  const [result, setResult] = useState(null);
  const [send, { busy, error }] = useAction(async () => {
    const format = /\.(ndjson|jsonl|json)$/i.test(file.name) ? "ndjson" : "csv";
    return call("POST /v1/lists/{id}/opt-outs/import/file", { path: { id }, body: { format, content: await file.text() }, timeoutMs: 120_000 });
  });
  const large = file && file.size > MAX_FILE_BYTES;
  const run = async () => {
    const reply = await send();
    if (reply !== undefined) setResult(reply);
  };
  if (result) {
    const figures = [["Added", number(result.added)], ["Already opted out", number(result.already)]];
    return html`<${FileResult} figures=${figures} refused=${result.refused} fileName="refused-opt-outs.csv" onClose=${() => onClose(true)} />`;
  }
  const foot = html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} disabled=${!file || large} onClick=${run}>Import<//>`;
  return html`<${Dialog} title="Import opt-outs" onClose=${() => onClose(false)} foot=${foot}>
    <p class="soft">A CSV file with a header row and a column <code>address</code> or <code>email</code>, or NDJSON (one JSON object per line). At most 10,000 rows and 4 MB; other columns are ignored.</p>
    <${Field} label="File" error=${large ? `The file has ${bytes(file.size)}; the limit is 4 MB. Split it.` : null}>${(attributes) => html`<input type="file" accept=".csv,.txt,.ndjson,.jsonl,text/csv" ...${attributes} onChange=${(event) => setFile(event.currentTarget.files[0] ?? null)} />`}<//>
    <${ErrorNote} error=${error} /><//>`;
}

function TakeBack({ id, name, row, onClose }) {
  const done = (ok) => {
    if (ok) toast(`${row.address} gets broadcasts to ${name} again`);
    onClose(ok);
  };
  return html`<${Confirm} title=${`Remove the opt-out of ${row.address}?`} confirm="Remove opt-out" action=${() => call("DELETE /v1/lists/{id}/opt-outs/{address}", { path: { id, address: row.address } })} onClose=${done}>This person opted out of this list. Remove the opt-out only if they asked you to; otherwise they may report you as spam.<//>`;
}
