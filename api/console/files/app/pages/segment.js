// One segment: its name, its filter and who matches.
import { call, useAction, useCall } from "../core/api.js";
import { go, guardLeaving } from "../core/router.js";
import { Button, Card, Code, ErrorNote, fieldError, Form, Notice, PageHead, Segments, SelectField, Skeleton, TextField, toast } from "../core/ui.js";
import { html, number, useEffect, useState } from "../core/view.js";
import { CONSENTS, FIELD_TYPES } from "../parts/contact_fields.js";
import { filterOf, formOf, hasValue, isComplete, OPERATORS, operatorText, PROPERTIES, sentence } from "../parts/segment_filter.js";
import { DeleteSegment } from "./lists.js";

const BACK = ["/lists", "Lists and segments"];
const EMPTY = { what: "field", name: "", op: "eq", type: "text", value: "" };
const KINDS = [["all", "All match"], ["any", "Any matches"], ["none", "None matches"]];

/** The page of a segment; the id `new` is that of one to create. */
export function Segment({ id }) {
  const isNew = id === "new";
  const state = useCall("GET /v1/segments/{id}", { path: { id } }, { skip: isNew });
  const lists = useCall("GET /v1/lists", { query: { limit: 100 } });
  if (!isNew && !state.data) return html`<${PageHead} title="Segment" back=${BACK} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} />`}`;
  return html`<${SegmentEditor} key=${state.data?.updatedAt ?? "new"} segment=${state.data} lists=${lists.data?.data ?? []} onSaved=${state.reload} />`;
}

function SegmentEditor({ segment, lists, onSaved }) {
  const stored = segment?.filter ?? { all: [] };
  const [draft, setDraft] = useState(() => ({ name: segment?.name ?? "", description: segment?.description ?? "", form: segment ? formOf(stored) : { kind: "all", rows: [EMPTY] }, text: JSON.stringify(stored, null, 2), changed: false }));
  const [deleting, setDeleting] = useState(false);
  const set = (change) => setDraft((old) => ({ ...old, ...change, changed: true }));
  useEffect(() => (draft.changed ? guardLeaving("This segment has unsaved changes. Leave and discard them?") : undefined), [draft.changed]);
  const filter = draft.form ? (isComplete(draft.form) ? filterOf(draft.form) : null) : parsed(draft.text);
  const body = { name: draft.name.trim(), description: draft.description.trim() || null, filter };
  const [save, { busy, error }] = useAction(() => (segment ? call("PATCH /v1/segments/{id}", { path: { id: segment.id }, body }) : call("POST /v1/segments", { body })));
  const submit = async () => {
    const saved = await save();
    if (saved === undefined) return;
    setDraft((old) => ({ ...old, changed: false }));
    guardLeaving("")();
    toast(`Segment ${saved.name} saved`);
    if (segment) onSaved();
    else go(`/segments/${saved.id}`, { replace: true });
  };
  const names = Object.fromEntries(lists.map((one) => [one.id, one.name]));
  const why = filter ? null : draft.form ? "Fill in every condition first." : "The filter is not valid JSON.";
  const taken = error?.type === "conflict" ? "Another segment has this name." : fieldError(error, "name");
  const actions = html`${segment && html`<${Button} icon="megaphone" to="/broadcasts/new" query=${{ segment: segment.id }}>New broadcast<//><${Button} danger icon="trash-2" role="member" onClick=${() => setDeleting(true)}>Delete segment<//>`}`;
  return html`<${PageHead} title=${segment ? segment.name : "New segment"} lead="A broadcast goes to every contact that matches when it starts." back=${BACK} actions=${actions} />
    <div class="stack">${segment?.deletedLists.length > 0 && html`<${Notice} tone="warn" title=${segment.deletedLists.length === 1 ? "A list of this segment was deleted." : "Lists of this segment were deleted."}>A condition on a deleted list matches no contact. Remove it, or choose another list.<//>`}<${Card} title="Segment"><${Form} onSubmit=${submit} style=${{ maxWidth: "60rem" }}>
      <${TextField} label="Name" required maxlength="120" value=${draft.name} onValue=${(name) => set({ name })} error=${taken} />
      <${TextField} label="Description" maxlength="500" value=${draft.description} onValue=${(description) => set({ description })} />
      <${FilterEditor} draft=${draft} set=${set} lists=${lists} />
      ${filter && html`<p class="soft">${sentence(filter, names)}</p>`}
      <${MatchCount} filter=${filter} />
      ${!taken && html`<${ErrorNote} error=${error} />`}
      <div class="form-actions"><${Button} kind="primary" type="submit" role="member" busy=${busy} why=${why ?? undefined}>${segment ? "Save segment" : "Create segment"}<//></div>
    <//><//>${filter && html`<${Card} title="Filter for the API"><${Code} text=${JSON.stringify(filter, null, 2)} label="Filter" /><//>`}</div>
    ${deleting && html`<${DeleteSegment} segment=${segment} onClose=${(gone) => { setDeleting(false); if (gone) go("/lists", { query: { tab: "segments" } }); }} />`}`;
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

function FilterEditor({ draft, set, lists }) {
  const mode = draft.form ? "form" : "json";
  const change = (wanted) => {
    if (wanted === mode) return;
    if (wanted === "json") set({ form: null, text: JSON.stringify(isComplete(draft.form) ? filterOf(draft.form) : { all: [] }, null, 2) });
    else {
      const form = parsed(draft.text) && formOf(parsed(draft.text));
      if (form) set({ form: form.rows.length ? form : { kind: "all", rows: [EMPTY] } });
      else toast("This filter is invalid, or has more levels than the form can show.", { tone: "info" });
    }
  };
  return html`<fieldset><legend>Contacts that match</legend>
    <div class="row"><${Segments} label="Edit as" options=${[["form", "Conditions"], ["json", "JSON"]]} value=${mode} onValue=${change} />${draft.form && html`<${Segments} label="Conditions" options=${KINDS} value=${draft.form.kind} onValue=${(kind) => set({ form: { ...draft.form, kind } })} />`}</div>
    ${draft.form
      ? html`<${Rows} form=${draft.form} onForm=${(form) => set({ form })} lists=${lists} />`
      : html`<${TextField} label="Filter as JSON" rows="12" mono value=${draft.text} onValue=${(text) => set({ text })} error=${parsed(draft.text) ? null : "This is not a JSON object."} hint="A condition, or an object with all, any or not. At most 5 levels and 50 conditions." />`}
  </fieldset>`;
}

function Rows({ form, onForm, lists }) {
  const rows = form.rows;
  const set = (at, change) => onForm({ ...form, rows: rows.map((row, place) => (place === at ? { ...row, ...change } : row)) });
  const subject = (at, what) => set(at, { ...EMPTY, what, op: OPERATORS[what][0], value: what === "confirmed" ? "true" : what === "consent" ? "signed_up" : what === "list" ? lists[0]?.id ?? "" : "" });
  return html`<div class="stack-tight">${rows.map((row, at) => html`<div class="condition" role="group" aria-label=${`Condition ${at + 1}`} key=${at}>
      <${SelectField} label="What" hideLabel value=${row.what} options=${Object.entries(PROPERTIES)} onValue=${(what) => subject(at, what)} />
      ${row.what === "field" && html`<${TextField} label="Field name" hideLabel placeholder="plan" maxlength="64" value=${row.name} onValue=${(name) => set(at, { name })} />`}
      <${SelectField} label="Comparison" hideLabel value=${row.op} options=${OPERATORS[row.what].map((op) => [op, operatorText(row.what, op)])} onValue=${(op) => set(at, { op })} />
      ${hasValue(row.op) && html`<${ValueField} row=${row} lists=${lists} onRow=${(change) => set(at, change)} />`}
      ${rows.length > 1 && html`<${Button} kind="quiet" icon="x" label=${`Remove condition ${at + 1}`} onClick=${() => onForm({ ...form, rows: rows.filter((_, place) => place !== at) })} />`}
    </div>`)}
    <div><${Button} icon="plus" disabled=${rows.length >= 50} onClick=${() => onForm({ ...form, rows: [...rows, EMPTY] })}>Add condition<//></div></div>`;
}

function ValueField({ row, lists, onRow }) {
  const value = (text) => onRow({ value: text });
  const choice = (options) => html`<${SelectField} label="Value" hideLabel value=${row.value} options=${options} onValue=${value} />`;
  if (row.what === "createdAt") return html`<${TextField} label="Day (UTC)" hideLabel type="date" value=${row.value} onValue=${value} />`;
  if (row.what === "confirmed" || (row.what === "field" && row.type === "boolean")) return html`${row.what === "field" && html`<${TypeField} row=${row} onRow=${onRow} />`}${choice([["true", "yes"], ["false", "no"]])}`;
  if (row.what === "consent" && row.op !== "in") return choice(CONSENTS);
  if (row.what === "list" && row.op !== "in") return choice([["", "Choose a list"], ...lists.map((one) => [one.id, one.name])]);
  const many = row.op === "in" ? "values, separated by commas" : "value";
  return html`${row.what === "field" && html`<${TypeField} row=${row} onRow=${onRow} />`}<${TextField} label="Value" hideLabel placeholder=${many} value=${row.value} onValue=${value} />`;
}

function TypeField({ row, onRow }) {
  return html`<${SelectField} label="Value type" hideLabel value=${row.type} options=${FIELD_TYPES} onValue=${(type) => onRow({ type, value: type === "boolean" ? "true" : row.value })} />`;
}

/** The number of contacts that match, counted again a moment after the last change. */
function MatchCount({ filter }) {
  const key = filter ? JSON.stringify(filter) : "";
  const [settled, setSettled] = useState(key);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(key), 400);
    return () => clearTimeout(timer);
  }, [key]);
  const [state, setState] = useState({ contacts: undefined, error: null });
  useEffect(() => {
    if (!settled) return undefined;
    let wanted = true;
    call("POST /v1/segments/count", { body: { filter: JSON.parse(settled) } }).then(
      (reply) => wanted && setState({ contacts: reply.contacts, error: null }),
      (error) => { if (!error.type) throw error; if (wanted) setState({ contacts: undefined, error }); },
    );
    return () => { wanted = false; };
  }, [settled]);
  if (!filter) return html`<p class="soft" role="status">Fill in the conditions to see how many contacts match.</p>`;
  if (state.error) return html`<${ErrorNote} error=${state.error} />`;
  const text = state.contacts === undefined ? "Counting…" : state.contacts === null ? "Counting took too long. A broadcast still goes to everyone who matches." : `${number(state.contacts)} ${state.contacts === 1 ? "contact matches" : "contacts match"} now.`;
  return html`<${Notice} tone="info"><span role="status">${text}</span><//>`;
}
