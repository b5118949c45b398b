// The dialog that imports a file of opt-outs as suppressions.
import { call, saveFile, useAction } from "../core/api.js";
import { Button, Dialog, ErrorNote, Field, Figures, Notice, SelectField } from "../core/ui.js";
import { bytes, html, number, plural, useState } from "../core/view.js";
import { csvText } from "./csv_text.js";

const MAX_FILE_BYTES = 4_000_000; // of one request

/** Choose a file of addresses, import it, and show what became of its rows. `onClose(true)` after an import. */
export function SuppressionFile({ onClose }) {
  const [file, setFile] = useState(null);
  const [reason, setReason] = useState("unsubscribe");
  const [result, setResult] = useState(null);
  const [send, { busy, error }] = useAction(async () => {
    const format = /\.(ndjson|jsonl|json)$/i.test(file.name) ? "ndjson" : "csv";
    return call("POST /v1/suppressions/import/file", { body: { format, content: await file.text(), reason }, timeoutMs: 120_000 });
  });
  const large = file && file.size > MAX_FILE_BYTES;
  const run = async () => {
    const reply = await send();
    if (reply !== undefined) setResult(reply);
  };
  if (result) {
    const figures = [["Added", number(result.added)], ["Stronger reason", number(result.changed)], ["Already suppressed", number(result.unchanged)]];
    return html`<${FileResult} figures=${figures} refused=${result.refused} fileName="refused-suppressions.csv" onClose=${() => onClose(true)} />`;
  }
  const foot = html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" busy=${busy} disabled=${!file || large} onClick=${run}>Import<//>`;
  return html`<${Dialog} title="Import suppressions" onClose=${() => onClose(false)} foot=${foot}>
    <p class="soft">A CSV file with a header row and a column <code>address</code> or <code>email</code>, and <code>reason</code> if you like, or NDJSON (one JSON object per line). At most 10,000 rows and 4 MB; other columns are ignored.</p>
    <${Field} label="File" error=${large ? `The file has ${bytes(file.size)}; the limit is 4 MB. Split it.` : null}>${(attributes) => html`<input type="file" accept=".csv,.txt,.ndjson,.jsonl,text/csv" ...${attributes} onChange=${(event) => setFile(event.currentTarget.files[0] ?? null)} />`}<//>
    <${SelectField} label="Reason for rows without one" value=${reason} onValue=${setReason} options=${[["unsubscribe", "Unsubscribe: block all except transactional email"], ["manual", "Manual: block all email"]]} />
    <${ErrorNote} error=${error} /><//>`;
}

/** Show what became of the rows of a file: `figures` as Figures takes them, and the refused rows, to be saved. */
export function FileResult({ figures, refused, fileName, onClose }) {
  const save = () => saveFile(new Blob([csvText([["row", "error", "value"], ...refused.map((one) => [one.index + 1, one.error.message, one.error.address ?? ""])])], { type: "text/csv" }), fileName);
  return html`<${Dialog} title="File imported" onClose=${onClose} foot=${html`${refused.length > 0 && html`<${Button} icon="download" onClick=${save}>Rejected rows<//>`}<${Button} kind="primary" onClick=${onClose}>Done<//>`}>
    <${Figures} items=${[...figures, ["Refused", number(refused.length)]]} />
    ${refused.length > 0 && html`<${Notice} tone="warn" title=${`${plural(refused.length, "row was", "rows were")} refused.`}><ul>${refused.slice(0, 5).map((one) => html`<li>Row ${number(one.index + 1)}: ${one.error.message}</li>`)}</ul><//>`}<//>`;
}
