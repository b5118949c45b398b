// The editor of a template: its parts, variables, live preview, versions, tests, and saving without overwriting others.
import { ApiError, call, useAction, useCall } from "../core/api.js";
import { go, guardLeaving, location, setQuery } from "../core/router.js";
import { Button, CheckField, Confirm, Dialog, ErrorNote, fieldError, Form, Menu, Notice, PageHead, Skeleton, Tabs, TextField, toast } from "../core/ui.js";
import { html, useEffect, useState } from "../core/view.js";
import { Editor } from "../parts/editor.js";
import { Rendered, SampleFields, useRendered } from "../parts/live_preview.js";
import { TemplateUse } from "../parts/template_use.js";
import { filled, keepSamples, keptSamples, usedNames } from "../parts/template_samples.js";
import { AllDifferences, Versions } from "../parts/template_versions.js";
import { TestDialog } from "../parts/test_dialog.js";

const START = { subject: "Your order {{order}}", html: "<h1>Hello {{name}}</h1>\n<p>Your order {{order}} is on its way.</p>\n", text: "Hello {{name}},\n\nyour order {{order}} is on its way.\n", variables: [{ name: "name", required: true, default: null }, { name: "order", required: true, default: null }] };
const BACK = ["/templates", "Templates"];
const FIELDS = ["id", "name", "subject", "html", "text", "variables"];

/** The page of template `id`, or of a new one. */
export function TemplateEditor({ id = null }) {
  const state = useCall("GET /v1/templates/{id}", { path: { id } }, { skip: !id });
  if (id && !state.data) return html`<${PageHead} title="Template" back=${BACK} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} lines=${8} />`}`;
  return html`<${EditorPage} key=${id ?? "new"} id=${id} saved=${state.data ?? START} />`;
}

const fieldsOf = (template) => ({ id: template.id ?? "", name: template.name ?? "", subject: template.subject ?? "", html: template.html ?? "", text: template.text ?? "", variables: (template.variables ?? []).map(({ name, required, default: value, description }) => ({ name, required: Boolean(required), default: value ?? null, description: description ?? null })) });

const requestOf = (draft) => ({ name: draft.name || null, subject: draft.subject || null, html: draft.html || null, text: draft.text || null, variables: draft.variables.filter((one) => one.name) });

function EditorPage({ id, saved }) {
  const [draft, setDraft] = useState(fieldsOf(saved));
  const [base, setBase] = useState(saved); // the version that the draft was made from
  const [newer, setNewer] = useState(null); // a version that somebody else saved meanwhile
  const [dialog, setDialog] = useState(null);
  const [samples, setSamples] = useState(() => keptSamples(id));
  const tab = location.value.query.get("tab") ?? "html";
  const set = (changes) => setDraft((old) => ({ ...old, ...changes }));
  const changed = JSON.stringify(draft) !== JSON.stringify(fieldsOf(base));
  useEffect(() => (changed ? guardLeaving("The template has unsaved changes. Leave the page and lose them?") : undefined), [changed]);
  const [save, saving] = useAction((version) => (id ? call("PATCH /v1/templates/{id}", { path: { id }, body: { ...requestOf(draft), ifVersion: version } }) : call("POST /v1/templates", { body: { ...requestOf(draft), ...(draft.id && { id: draft.id }) } })));
  const names = usedNames(draft);
  const shown = useRendered({ ...draft, variables: requestOf(draft).variables }, filled(names, samples));
  const keep = (next) => {
    setSamples(next);
    keepSamples(id, next);
  };
  const submit = async (version = base.version) => {
    const reply = await save(version);
    if (!reply) return;
    guardLeaving("")();
    toast(!id ? "Template created" : reply.version === base.version ? "Saved without a new version" : `Version ${reply.version} saved`);
    if (!id) {
      keepSamples(reply.id, samples);
      go(`/templates/${reply.id}`, { replace: true });
      return;
    }
    setBase(reply);
    setDraft(fieldsOf(reply));
    setNewer(null);
  };
  const conflict = saving.error?.type === "conflict" && id;
  useEffect(() => {
    if (!conflict) return;
    call("GET /v1/templates/{id}", { path: { id }, quiet: true }).then(setNewer, (error) => { if (!(error instanceof ApiError)) throw error; });
  }, [saving.error]);
  const problem = saving.error ?? shown.error;
  const wrong = (part) => fieldError(problem, part);
  const line = problem?.details.line ?? null;
  const tabs = [["html", "HTML"], ["text", "Text"], ["variables", `Variables (${draft.variables.length})`], id && ["versions", "Versions"], id && ["use", "Use"]].filter(Boolean);
  const restore = (version) => {
    setDraft({ ...fieldsOf(version), id: draft.id, name: draft.name });
    setQuery({ tab: null });
    toast(`Version ${version.version} is in the editor. Save it to make it the latest.`, { tone: "info" });
  };
  const actions = html`${id && html`<${Button} icon="mail" role="member" onClick=${() => setDialog("test")}>Send a test<//>`}<${Button} kind="primary" role="member" busy=${saving.busy} why=${changed || !id ? null : "There is nothing to save."} onClick=${() => submit()}>${id ? "Save" : "Create template"}<//>${id && html`<${Menu} label="More actions" kind="plain" items=${menuOf(id, setDialog)} />`}`;
  return html`<${PageHead} title=${id ? base.name ?? id : "New template"} back=${BACK} lead=${id ? `Version ${base.version}. A save is the next version; sends use it at once. Messages already accepted, and broadcasts already started, keep theirs.` : "Content with variables. A send names the template and gives the values."} actions=${actions} />
    <div class="stack">
      ${newer && html`<${Notice} tone="warn" title=${`Somebody saved version ${newer.version} while you edited version ${base.version}.`} action=${html`<${Button} onClick=${() => setDialog("conflict")}>Compare<//>`}>Your changes are still here and are not saved.<//>`}
      ${!newer && html`<${ErrorNote} error=${saving.error} fields=${FIELDS.slice(0, 5)} />`}
      <div class="columns">
        ${!id && html`<${TextField} label="Id" value=${draft.id} onValue=${(value) => set({ id: value })} placeholder="receipt" error=${wrong("id")} hint="How sends name it: lower-case letters, digits and hyphens. Empty: made from the name." />`}
        <${TextField} label="Name" maxlength="120" value=${draft.name} onValue=${(name) => set({ name })} error=${wrong("name")} hint="For people; may be empty." />
        <${TextField} label="Subject" maxlength="998" value=${draft.subject} onValue=${(subject) => set({ subject })} error=${wrong("subject")} />
      </div>
      <div class="template-columns">
        <div><${Tabs} label="Parts of the template" items=${tabs} current=${tab} onSelect=${(key) => setQuery({ tab: key === "html" ? null : key })} />
          ${tab === "html" && html`<${Editor} key="html" label="HTML" value=${draft.html} onValue=${(value) => set({ html: value })} error=${wrong("html")} line=${wrong("html") && line} hint="{{name}} is the value, escaped; {{#name}} … {{/name}} is shown if it has one." />`}
          ${tab === "text" && html`<${Editor} key="text" label="Text" language="text" value=${draft.text} onValue=${(text) => set({ text })} error=${wrong("text")} line=${wrong("text") && line} hint="The plain text for readers without HTML." />`}
          ${tab === "variables" && html`<${Variables} names=${names} variables=${draft.variables} onVariables=${(variables) => set({ variables })} />`}
          ${tab === "versions" && id && html`<${Versions} key=${base.version} id=${id} current=${base} onRestore=${restore} />`}
          ${tab === "use" && id && html`<${TemplateUse} id=${id} draft=${draft} samples=${samples} />`}
        </div>
        <div class="stack"><${SampleFields} names=${names} samples=${samples} onSamples=${keep} /><${Rendered} state=${shown} title="Preview of the template" /></div>
      </div>
    </div>
    ${dialog === "test" && html`<${TestDialog} title=${`Send a test of ${base.name ?? id}`} sender send=${({ to, from }) => call("POST /v1/templates/{id}/test", { path: { id }, body: { from, to, version: base.version, variables: filled(usedNames(fieldsOf(base)), samples) } })} onClose=${() => setDialog(null)}>
      ${changed ? html`<${Notice} tone="warn">The test sends version ${base.version} as it was saved, without your unsaved changes.<//>` : html`<p class="soft">It sends version ${base.version} with the sample values.</p>`}<//>`}
    ${dialog === "duplicate" && html`<${DuplicateDialog} id=${id} name=${base.name ?? id} changed=${changed} onClose=${() => setDialog(null)} />`}
    ${dialog === "conflict" && newer && html`<${ConflictDialog} newer=${newer} base=${base} draft=${draft} busy=${saving.busy} onClose=${() => setDialog(null)} onReplace=${() => { setDialog(null); submit(newer.version); }} onTake=${() => { setDialog(null); setBase(newer); setDraft(fieldsOf(newer)); setNewer(null); saving.clear(); }} />`}
    ${dialog === "delete" && html`<${Confirm} title=${`Delete the template ${base.name ?? id}?`} typed=${id} confirm="Delete template" action=${() => call("DELETE /v1/templates/{id}", { path: { id } })} onClose=${(done) => { setDialog(null); if (done) { guardLeaving("")(); toast(`Template ${id} deleted`); go("/templates"); } }}>Sends and drafts of broadcasts that name it are refused from now on. Broadcasts that were started keep its content.<//>`}`;
}

const menuOf = (id, open) => [
  { text: "Write a message with it", icon: "send", to: "/messages/new", query: { template: id } },
  { text: "Duplicate", icon: "copy", onSelect: () => open("duplicate") },
  { text: "Delete", icon: "trash-2", danger: true, onSelect: () => open("delete") },
];

function Variables({ names, variables, onVariables }) {
  const change = (at, changes) => onVariables(variables.map((one, place) => (place === at ? { ...one, ...changes } : one)));
  const missing = names.filter((name) => !variables.some((one) => one.name === name));
  const add = (name) => ({ name, required: false, default: null, description: null });
  return html`<div class="stack">
    <p class="soft">A required variable without a value and without a default refuses the send. Others are empty without a value.</p>
    ${missing.length > 0 && html`<${Notice} action=${html`<${Button} onClick=${() => onVariables([...variables, ...missing.map(add)])}>Declare them<//>`}>Used, but not declared: ${missing.join(", ")}.<//>`}
    ${variables.map((one, at) => html`<div class="variable" key=${at} role="group" aria-label=${`Variable ${one.name || at + 1}`}>
      <${TextField} label="Name" mono value=${one.name} onValue=${(name) => change(at, { name })} />
      <${TextField} label="Default" value=${one.default ?? ""} onValue=${(value) => change(at, { default: value || null })} />
      <${CheckField} label="Required" checked=${one.required} onChecked=${(required) => change(at, { required })} />
      <${Button} kind="quiet" icon="trash-2" label=${`Remove ${one.name || "the variable"}`} onClick=${() => onVariables(variables.filter((_, place) => place !== at))} />
    </div>`)}
    <div><${Button} icon="plus" onClick=${() => onVariables([...variables, add("")])}>Add a variable<//></div>
  </div>`;
}

function DuplicateDialog({ id, name, changed, onClose }) {
  const [wanted, setWanted] = useState({ name: `${name} (copy)`.slice(0, 120), id: "" });
  const [copy, { busy, error }] = useAction(() => call("POST /v1/templates/{id}/duplicate", { path: { id }, body: { name: wanted.name || null, id: wanted.id || null } }));
  const submit = async () => {
    const reply = await copy();
    if (!reply) return;
    guardLeaving("")();
    toast(`Template ${reply.id} created`);
    go(`/templates/${reply.id}`);
  };
  return html`<${Dialog} title=${`Duplicate ${name}`} onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" busy=${busy} onClick=${submit}>Duplicate<//>`}>
    <${Form} onSubmit=${submit}>
      ${changed && html`<${Notice} tone="warn">The copy has the saved content. Your unsaved changes are lost when the copy opens.<//>`}
      <${TextField} label="Name of the copy" maxlength="120" value=${wanted.name} onValue=${(value) => setWanted({ ...wanted, name: value })} error=${fieldError(error, "name")} />
      <${TextField} label="Id of the copy" value=${wanted.id} onValue=${(value) => setWanted({ ...wanted, id: value })} error=${fieldError(error, "id")} hint="Empty: made from the name." />
      <${ErrorNote} error=${error} fields=${["name", "id"]} />
    <//><//>`;
}

function ConflictDialog({ newer, base, draft, busy, onClose, onReplace, onTake }) {
  const foot = html`<${Button} onClick=${onClose}>Go on editing<//><${Button} onClick=${onTake}>Drop my changes<//><${Button} kind="primary" danger busy=${busy} onClick=${onReplace}>Replace version ${newer.version} with mine<//>`;
  return html`<${Dialog} title=${`Version ${newer.version} and your changes`} wide onClose=${onClose} foot=${foot}>
    <p>Version ${newer.version} was saved while you edited version ${base.version}. From it to what you have in the editor:</p>
    <${AllDifferences} from=${newer} to=${draft} />
  <//>`;
}
