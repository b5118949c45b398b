// The import of contacts from a CSV: choose, map, check, send.
import { saveFile, useCall } from "../core/api.js";
import { guardLeaving, location } from "../core/router.js";
import { Button, Card, ErrorNote, Field, Figures, Notice, PageHead, SelectField, TextField } from "../core/ui.js";
import { bytes, html, number, percent, plural, useEffect, useRef, useState } from "../core/view.js";
import { CONSENTS, CONSENT_TEXTS, FIELD_TYPES } from "../parts/contact_fields.js";
import { guessed, mappingFault } from "../parts/contact_rows.js";
import { csvPieces } from "../parts/csv.js";
import { csvText } from "../parts/csv_text.js";
import { dryRun, sendAll } from "../parts/import_run.js";

const MAX_FILE_BYTES = 500_000_000;
const AS = [["email", "Address"], ["name", "Name"], ["field", "Field"], ["skip", "Skip"]];

export function ContactImport() {
  const [file, setFile] = useState(null); // {file, header, rows}
  const [columns, setColumns] = useState([]);
  const [fault, setFault] = useState(null);
  const [options, setOptions] = useState({ consent: "", list: location.value.query.get("list") ?? "" });
  const [run, setRun] = useState({ step: "map" }); // map, checking, checked, sending, done
  const abort = useRef(null);
  const busy = run.step === "checking" || run.step === "sending";
  useEffect(() => (busy ? guardLeaving("Leave and stop the import? Rows already imported are kept.") : undefined), [busy]);
  useEffect(() => () => abort.current?.abort(), []);
  const choose = async (chosen) => {
    setFault(null);
    setRun({ step: "map" });
    setFile(null);
    if (!chosen) return;
    try {
      const opened = await preview(chosen);
      setFile(opened);
      setColumns(guessed(opened.header));
    } catch (error) {
      setFault(error.message);
    }
  };
  const start = async (step, action) => {
    const control = new AbortController();
    abort.current = control;
    setRun((old) => ({ ...old, step, share: 0, fault: null, error: null }));
    try {
      const result = await action(control.signal);
      setRun(control.signal.aborted && step === "checking" ? { step: "map" } : { step: step === "checking" ? "checked" : "done", result, cancelled: control.signal.aborted });
    } catch (error) {
      setRun({ step: step === "checking" ? "map" : "done", result: error.totals, error: error.type ? error : null, fault: error.type ? null : error.message });
    }
  };
  const check = () => start("checking", (signal) => dryRun(file.file, columns, { signal, onProgress: (share) => setRun((old) => ({ ...old, share })) }));
  const send = () => start("sending", (signal) => sendAll(file.file, columns, { ...options, signal, onProgress: (share, totals) => setRun((old) => ({ ...old, share, totals })) }));
  const change = (next) => {
    setColumns(next);
    setRun({ step: "map" });
  };
  const wrong = file && mappingFault(columns);
  return html`<${PageHead} title="Import contacts" back=${["/contacts", "Contacts"]} lead="Your browser reads the file and sends it in batches of 1,000. Existing contacts are merged. Suppressed addresses stay suppressed." />
    <div class="stack">
      ${run.step !== "done" && html`<${ChooseFile} onFile=${choose} fault=${fault} file=${file} disabled=${busy} />`}
      ${file && run.step !== "done" && html`<${MapColumns} file=${file} columns=${columns} onColumns=${change} disabled=${busy} fault=${wrong} />
        <${Options} options=${options} onOptions=${setOptions} disabled=${busy} />
        <${Actions} run=${run} wrong=${wrong} consent=${options.consent} onCheck=${check} onSend=${send} onCancel=${() => abort.current.abort()} />`}
      ${run.step === "done" && html`<${Result} run=${run} list=${options.list} onAgain=${() => { setFile(null); setRun({ step: "map" }); }} />`}
    </div>`;
}

async function preview(file) {
  if (file.size === 0) throw new Error("The file is empty.");
  if (file.size > MAX_FILE_BYTES) throw new Error(`The file has ${bytes(file.size)}; the limit is ${bytes(MAX_FILE_BYTES)}. Split it into smaller files.`);
  for await (const { rows } of csvPieces(file)) {
    if (rows.length) return { file, header: rows[0], rows: rows.slice(1, 4) };
  }
  throw new Error("The file has no header row. Name the columns in its first line.");
}

function ChooseFile({ onFile, fault, file, disabled }) {
  return html`<${Card} title="1. File"><${Field} label="CSV file" error=${fault} hint="With a header row. Commas, semicolons or tabs; UTF-8, UTF-16 or Windows-1252.">${(attributes) => html`<input type="file" accept=".csv,.tsv,.txt,text/csv" disabled=${disabled} ...${attributes} onChange=${(event) => onFile(event.currentTarget.files[0])} />`}<//>
    ${file && html`<p class="soft small">${file.file.name}, ${bytes(file.file.size)}, ${plural(file.header.length, "column")}</p>`}<//>`;
}

function MapColumns({ file, columns, onColumns, disabled, fault }) {
  const set = (at, change) => onColumns(columns.map((one, place) => (place === at ? { ...one, ...change } : one)));
  return html`<${Card} title="2. Columns" flush>${fault && html`<div class="card-body"><${Notice} tone="warn">${fault}<//></div>`}
    <div class="table-frame" tabindex="0" role="region" aria-label="Columns"><table class="table cards"><caption class="visually-hidden">Columns in the file</caption>
    <thead><tr><th scope="col">Column</th><th scope="col">Examples</th><th scope="col">Becomes</th><th scope="col">Field</th></tr></thead>
    <tbody>${columns.map((column, at) => { const title = file.header[at] || `column ${at + 1}`; return html`<tr key=${at}>
      <td class="strong"><span class="wrap address">${title}</span></td>
      <td class="small soft" data-label="Examples"><span class="wrap">${file.rows.map((row) => row[at]).filter(Boolean).map((text) => text.slice(0, 60)).join(", ") || "–"}</span></td>
      <td data-label="Becomes"><${SelectField} label=${`Meaning of ${title}`} hideLabel disabled=${disabled} value=${column.as} options=${AS} onValue=${(as) => set(at, { as })} /></td>
      <td>${column.as === "field" && html`<div class="row import-field"><${TextField} label=${`Name of the field of ${title}`} hideLabel disabled=${disabled} value=${column.name} maxlength="64" onValue=${(name) => set(at, { name })} /><${SelectField} label=${`Type of the field of ${title}`} hideLabel disabled=${disabled} value=${column.type} options=${FIELD_TYPES} onValue=${(type) => set(at, { type })} /></div>`}</td></tr>`; })}</tbody></table></div><//>`;
}

function Options({ options, onOptions, disabled }) {
  const lists = useCall("GET /v1/lists", { query: { limit: 100 } });
  const set = (change) => onOptions({ ...options, ...change });
  return html`<${Card} title="3. Consent and list"><div class="columns">
    <${SelectField} label="Consent of these contacts" disabled=${disabled} value=${options.consent} onValue=${(consent) => set({ consent })} options=${[["", "Choose how you got consent"], ...CONSENTS]} hint=${CONSENT_TEXTS[options.consent] ?? "Emails without consent bring complaints, and complaints can stop your sending. A contact keeps a stronger consent it already has."} />
    <${SelectField} label="Add to list" disabled=${disabled} value=${options.list} onValue=${(list) => set({ list })} options=${[["", "No list"], ...(lists.data?.data ?? []).map((one) => [one.id, one.name])]} /></div>
    <${ErrorNote} error=${lists.error} retry=${lists.reload} /><//>`;
}

function Actions({ run, wrong, consent, onCheck, onSend, onCancel }) {
  const busy = run.step === "checking" || run.step === "sending";
  const { result } = run;
  const sendWhy = consent ? (result?.valid ? undefined : "There is no valid row to import.") : "Choose the consent first.";
  return html`<${Card} title="4. Check and import"><div class="stack">
    ${run.fault && html`<${Notice} tone="bad">${run.fault}<//>`}<${ErrorNote} error=${run.error} />
    ${busy && html`<div class="stack-tight"><p role="status">${run.step === "checking" ? "Checking the file" : "Sending"}: ${percent(run.share ?? 0, 0)}${run.totals ? `, ${number(run.totals.sent)} contacts sent` : ""}</p><progress class="progress" aria-label="Progress" value=${run.share ?? 0} max="1"></progress></div>`}
    ${run.step === "checked" && html`<${Figures} items=${[["Can be imported", number(result.valid)], ["Duplicates, merged", number(result.duplicates)], ["Invalid, skipped", number(result.invalid)]]} /><${Faults} faults=${result.faults} count=${result.invalid + result.duplicates} name="check-of-contacts.csv" />`}
    <div class="form-actions">
      ${busy ? html`<${Button} icon="x" onClick=${onCancel}>Cancel<//>` : html`<${Button} kind=${run.step === "checked" ? "plain" : "primary"} why=${wrong ?? undefined} onClick=${onCheck}>${run.step === "checked" ? "Check again" : "Check the file"}<//>`}
      ${run.step === "checked" && html`<${Button} kind="primary" icon="upload" role="member" why=${sendWhy} onClick=${onSend}>Import ${plural(result.valid, "contact")}<//>`}
    </div></div><//>`;
}

/** The first rows with faults, and all of them as CSV. */
function Faults({ faults, count, name }) {
  if (count === 0) return null;
  const save = () => saveFile(new Blob([csvText([["row", "address", "error"], ...faults.map((one) => [one.row, one.email, one.text])])], { type: "text/csv" }), name);
  return html`<${Notice} tone="warn" title=${`${plural(count, "row")} to look at.`} action=${html`<${Button} icon="download" onClick=${save}>As CSV<//>`}>
    <ul>${faults.slice(0, 8).map((one) => html`<li key=${one.row}>Row ${number(one.row)}: ${one.text}</li>`)}</ul>${count > 8 && html`<span class="soft">The CSV has ${faults.length < count ? `the first ${number(faults.length)}` : "all of them"}.</span>`}<//>`;
}

function Result({ run, list, onAgain }) {
  const { result } = run;
  return html`<${Card} title=${run.cancelled ? "Import canceled" : run.error || run.fault ? "Import stopped" : "Import finished"}><div class="stack">
    ${run.cancelled && html`<${Notice} tone="warn">Rows already imported are kept. You can import the same file again; contacts are merged by address.<//>`}
    ${run.fault && html`<${Notice} tone="bad">${run.fault}<//>`}<${ErrorNote} error=${run.error} />
    ${result && html`<${Figures} items=${[["Created", number(result.created)], ["Changed", number(result.updated)], ["Unchanged", number(result.unchanged)], ["Not valid", number(result.invalid)], ["Suppressed", number(result.suppressed), "stay suppressed"], ["Over the plan limit", number(result.overLimit), "not created"]]} />
      ${result.overLimit > 0 && html`<${Notice} tone="warn" action=${html`<${Button} to="/billing">Plans<//>`}>You've reached your plan's contact limit, so ${plural(result.overLimit, "contact was", "contacts were")} not created.<//>`}
      <${Faults} faults=${result.faults} count=${result.invalid} name="refused-contacts.csv" />`}
    <div class="form-actions"><${Button} kind="primary" to=${list ? `/lists/${list}` : "/contacts"}>${list ? "Show the list" : "Show contacts"}<//>${list && html`<${Button} icon="megaphone" to="/broadcasts/new" query=${{ list }}>Write a broadcast<//>`}<${Button} onClick=${onAgain}>Import another file<//></div></div><//>`;
}
