// The editor of a template: its parts, variables, live preview, versions, tests, and saving without overwriting others.
import { ApiError, call, useAction, useCall } from "../core/api.js";
import { go, guardLeaving, href, location, setQuery } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Confirm, Dialog, ErrorNote, fieldError, Form, Menu, Notice, PageHead, SelectField, Skeleton, Tabs, TextField, toast } from "../core/ui.js";
import { classes, html, useEffect, useState } from "../core/view.js";
import { allNames, Rendered, SampleFields, useLayout, useRendered } from "../parts/live_preview.js";
import { filled, keepData, keepSamples, keptData, keptSamples, namesBeside, parsedData, usedNames } from "../parts/template_samples.js";
import { BlockEditor, MadeOfBlocks, StartFrom } from "../parts/template_blocks.js";
import { declaredOf, Variables } from "../parts/template_variables.js";

const loadEditor = () => import("../parts/editor.js");
const loadTest = () => import("../parts/test_dialog.js");
const loadUse = () => import("../parts/template_use.js");
const loadVersions = () => import("../parts/template_versions.js");

const START = { subject: "Your order {{order}}", html: "<h1>Hello {{name}}</h1>\n<p>Your order {{order}} is on its way.</p>\n", text: "Hello {{name}},\n\nyour order {{order}} is on its way.\n", variables: [{ name: "name", required: true, default: null }, { name: "order", required: true, default: null }] };
const BACK = ["/templates", "Templates"];
const FIELDS = ["id", "name", "subject", "html", "text", "variables", "layout"];
const CONTENT = "Reusable content with variables. Each send names the template and passes the values.";

/** The page of template `id`, or of a new one; `?start=html` begins a new one as HTML. */
export function TemplateEditor({ id = null }) {
  const [start, setStart] = useState(null); // what a new template begins with
  const state = useCall("GET /v1/templates/{id}", { path: { id } }, { skip: !id });
  if (id && !state.data) return html`<${PageHead} title="Template" back=${BACK} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} lines=${8} />`}`;
  const first = start ?? (location.value.query.get("start") === "html" ? START : null);
  if (!id && !first) return html`<${PageHead} title="New template" back=${BACK} lead=${CONTENT} /><${StartFrom} onStart=${setStart} onHtml=${() => setQuery({ start: "html" })} />`;
  return html`<${EditorPage} key=${id ?? "new"} id=${id} saved=${state.data ?? first} />`;
}

const fieldsOf = (template) => ({ id: template.id ?? "", name: template.name ?? "", subject: template.subject ?? "", html: template.html ?? "", text: template.text ?? "", blocks: template.blocks ?? null, variables: declaredOf(template), layout: template.layout ?? "" });

const requestOf = (draft) => ({ name: draft.name || null, subject: draft.subject || null, ...(draft.blocks ? { blocks: draft.blocks, layout: null } : { blocks: null, html: draft.html || null, text: draft.text || null, layout: draft.layout || null }), variables: draft.variables.filter((one) => one.name) });

/** Return [sample values, JSON of lists and objects] of the sample data of a starting document. */
function samplesOf({ data }) {
  const isPlain = ([, value]) => typeof value !== "object";
  const entries = Object.entries(data ?? {});
  const nested = entries.filter((entry) => !isPlain(entry));
  return [Object.fromEntries(entries.filter(isPlain).map(([name, value]) => [name, String(value)])), nested.length ? JSON.stringify(Object.fromEntries(nested), null, 2) : ""];
}

function EditorPage({ id, saved }) {
  const [draft, setDraft] = useState(fieldsOf(saved));
  const [base, setBase] = useState(saved); // the version that the draft was made from
  const [newer, setNewer] = useState(null); // a version that somebody else saved meanwhile
  const [dialog, setDialog] = useState(null);
  const [samples, setSamples] = useState(() => (saved.data ? samplesOf(saved)[0] : keptSamples(id)));
  const [json, setJson] = useState(() => (saved.data ? samplesOf(saved)[1] : keptData(id)));
  const usual = draft.blocks ? "blocks" : "html"; // the tab that opens first
  const tab = location.value.query.get("tab") ?? usual;
  const set = (changes) => setDraft((old) => ({ ...old, ...changes }));
  const changed = JSON.stringify(draft) !== JSON.stringify(fieldsOf(base));
  useEffect(() => (changed ? guardLeaving("This template has unsaved changes. Leave and discard them?") : undefined), [changed]);
  const [save, saving] = useAction((version) => (id ? call("PATCH /v1/templates/{id}", { path: { id }, body: { ...requestOf(draft), ifVersion: version } }) : call("POST /v1/templates", { body: { ...requestOf(draft), ...(draft.id && { id: draft.id }) } })));
  const layout = useLayout(draft.layout);
  const { data } = parsedData(json);
  const variables = [...draft.variables, ...(draft.layout && layout ? layout.variables : [])];
  const names = namesBeside(allNames(draft, layout), data, variables);
  const shown = useRendered({ ...draft, variables: requestOf(draft).variables }, filled(names, samples, variables), data);
  const keep = (next) => {
    setSamples(next);
    keepSamples(id, next);
  };
  const keepJson = (next) => {
    setJson(next);
    keepData(id, next);
  };
  const submit = async (version = base.version) => {
    const reply = await save(version);
    if (!reply) return;
    guardLeaving("")();
    toast(!id ? "Template created" : reply.version === base.version ? "Saved without a new version" : `Version ${reply.version} saved`);
    if (!id) {
      keepSamples(reply.id, samples);
      keepData(reply.id, json);
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
  const tabs = [["blocks", "Blocks"], draft.blocks && ["preview", "Preview"], ["html", "HTML"], ["text", "Text"], ["variables", `Variables (${draft.variables.length})`], id && ["versions", "Versions"], id && ["use", "Use"]].filter(Boolean);
  const sampled = { names, variables, samples, onSamples: keep, data: json, onData: keepJson };
  const written = {
    html: () => html`<${Lazy} load=${loadEditor} name="Editor" key="html" label="HTML" value=${draft.html} onValue=${(value) => set({ html: value })} error=${wrong("html")} line=${wrong("html") && line} hint="{{name}} inserts the escaped value; {{#name}} … {{/name}} appears only if there is one." />`,
    text: () => html`<${Lazy} load=${loadEditor} name="Editor" key="text" label="Text" language="text" value=${draft.text} onValue=${(text) => set({ text })} error=${wrong("text")} line=${wrong("text") && line} hint="Plain text for readers without HTML." />`,
  };
  const begin = (start) => {
    const added = start.variables.filter((one) => !draft.variables.some((known) => known.name === one.name));
    const [values, nested] = samplesOf(start);
    keep({ ...values, ...samples });
    if (!json.trim()) keepJson(nested);
    set({ blocks: start.blocks, layout: "", subject: draft.subject || start.subject, variables: [...draft.variables, ...declaredOf({ variables: added })] });
  };
  const restore = (version) => {
    setDraft({ ...fieldsOf(version), id: draft.id, name: draft.name });
    setQuery({ tab: null });
    toast(`Version ${version.version} is in the editor. Save it to make it the latest.`, { tone: "info" });
  };
  const actions = html`${id && html`<${Button} icon="mail" role="member" onClick=${() => setDialog("test")}>Send a test<//>`}<${Button} kind="primary" role="member" busy=${saving.busy} why=${changed || !id ? null : "No changes to save."} onClick=${() => submit()}>${id ? "Save" : "Create template"}<//>${id && html`<${Menu} label="More actions" kind="plain" items=${menuOf(id, setDialog)} />`}`;
  const sample = () => ({ variables: filled(namesBeside(allNames(base, layout), data, variables), samples, variables), data });
  return html`<${PageHead} title=${id ? base.name ?? id : "New template"} back=${BACK} lead=${id ? html`Version ${base.version}.<span class="wide-only"> Saving makes version ${base.version + 1}, which new sends use at once; accepted messages and started broadcasts keep theirs.</span>` : CONTENT} actions=${actions} />
    <div class="stack">
      ${newer && html`<${Notice} tone="warn" title=${`Somebody saved version ${newer.version} while you edited version ${base.version}.`} action=${html`<${Button} onClick=${() => setDialog("conflict")}>Compare<//>`}>Your changes are still here, but not saved.<//>`}
      ${!newer && html`<${ErrorNote} error=${saving.error} fields=${FIELDS.filter((field) => field !== "variables")} />`}
      <div class="columns">
        ${!id && html`<${TextField} label="Id" value=${draft.id} onValue=${(value) => set({ id: value })} placeholder="receipt" error=${wrong("id")} hint="Sends use this id. Lower-case letters, digits and hyphens. Leave blank to generate one from the name." />`}
        <${TextField} label="Name" maxlength="120" placeholder=${id ?? undefined} value=${draft.name} onValue=${(name) => set({ name })} error=${wrong("name")} hint=${id ? null : "Shown in the console. Optional."} />
        <${TextField} label="Subject" maxlength="998" value=${draft.subject} onValue=${(subject) => set({ subject })} error=${wrong("subject")} />
        ${!draft.blocks && html`<${LayoutField} value=${draft.layout} onValue=${(value) => set({ layout: value })} error=${wrong("layout")} />`}
      </div>
      <div class=${tab === "blocks" && draft.blocks ? "" : classes("template-columns", tab === "preview" && "wide-preview")}>
        <div><${Tabs} label="Parts of the template" items=${tabs} current=${tab} onSelect=${(key) => setQuery({ tab: key === usual ? null : key })} />
          ${tab === "blocks" && (draft.blocks ? html`<${BlockEditor} content=${draft} names=${draft.variables.map((one) => one.name).filter(Boolean)} error=${shown.error} onBlocks=${(blocks) => set({ blocks })} />` : html`<div class="stack"><${Notice}>This template is written as HTML. Blocks replace the HTML when you save; earlier versions keep it.<//><${StartFrom} onStart=${begin} /></div>`)}
          ${tab === "preview" && html`<${SampleFields} ...${sampled} />`}
          ${(tab === "html" || tab === "text") && (draft.blocks ? html`<${MadeOfBlocks} key=${tab} part=${tab} source=${shown.reply?.source} onLeave=${(source) => set({ ...source, blocks: null })} />` : written[tab]())}
          ${tab === "variables" && html`<${Variables} names=${usedNames(draft)} variables=${draft.variables} onVariables=${(variables) => set({ variables })} />`}
          ${tab === "versions" && id && html`<${Lazy} load=${loadVersions} name="Versions" key=${base.version} id=${id} current=${base} onRestore=${restore} />`}
          ${tab === "use" && id && html`<${Lazy} load=${loadUse} name="TemplateUse" id=${id} values=${filled(names, samples, variables)} data=${data} />`}
        </div>
        ${!(tab === "blocks" && draft.blocks) && html`<div class="stack">${tab !== "preview" && html`<${SampleFields} ...${sampled} />`}<${Rendered} state=${shown} title="Preview of the template" /></div>`}
      </div>
    </div>
    ${dialog === "test" && html`<${Lazy} load=${loadTest} name="TestDialog" title=${`Send a test of ${base.name ?? id}`} sender send=${({ to, from }) => call("POST /v1/templates/{id}/test", { path: { id }, body: { from, to, version: base.version, ...sample() } })} foresee=${({ to, from }) => call("POST /v1/emails", { body: { from, to, template: id, templateVersion: base.version, ...sample(), dryRun: true } })} onClose=${() => setDialog(null)}>
      ${changed ? html`<${Notice} tone="warn">The test sends the saved version ${base.version}, without your unsaved changes.<//>` : html`<p class="soft">It sends version ${base.version} with the sample values.</p>`}<//>`}
    ${dialog === "duplicate" && html`<${DuplicateDialog} id=${id} name=${base.name ?? id} changed=${changed} onClose=${() => setDialog(null)} />`}
    ${dialog === "conflict" && newer && html`<${ConflictDialog} newer=${newer} base=${base} draft=${draft} source=${shown.reply?.source} busy=${saving.busy} onClose=${() => setDialog(null)} onReplace=${() => { setDialog(null); submit(newer.version); }} onTake=${() => { setDialog(null); setBase(newer); setDraft(fieldsOf(newer)); setNewer(null); saving.clear(); }} />`}
    ${dialog === "delete" && html`<${Confirm} title=${`Delete the template ${base.name ?? id}?`} typed=${id} confirm="Delete template" action=${() => call("DELETE /v1/templates/{id}", { path: { id } })} onClose=${(done) => { setDialog(null); if (done) { guardLeaving("")(); toast(`Template ${id} deleted`); go("/templates"); } }}>Sends and broadcast drafts that use it are rejected from now on. Broadcasts already started keep its content.<//>`}`;
}

function LayoutField({ value, onValue, error }) {
  const layouts = useCall("GET /v1/layouts", { query: { limit: 100 }, quiet: true });
  const options = [["", "None"], ...(layouts.data?.data ?? []).map((one) => [one.id, one.name ?? one.id])];
  if (value && !options.some(([one]) => one === value)) options.push([value, value]);
  return html`<${SelectField} label="Layout" value=${value} onValue=${onValue} error=${error} options=${options} hint=${value ? html`The frame of the content: <a href=${href(`/layouts/${value}`)}>change it</a>.` : "The frame that templates share: head, logo, footer."} />`;
}

const menuOf = (id, open) => [
  { text: "Write a message with it", icon: "send", to: "/messages/new", query: { template: id } },
  { text: "Duplicate", icon: "copy", onSelect: () => open("duplicate") },
  { text: "Delete", icon: "trash-2", danger: true, onSelect: () => open("delete") },
];

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
      ${changed && html`<${Notice} tone="warn">The copy contains the saved content. Opening it discards your unsaved changes.<//>`}
      <${TextField} label="Name of the copy" maxlength="120" value=${wanted.name} onValue=${(value) => setWanted({ ...wanted, name: value })} error=${fieldError(error, "name")} />
      <${TextField} label="Id of the copy" value=${wanted.id} onValue=${(value) => setWanted({ ...wanted, id: value })} error=${fieldError(error, "id")} hint="Leave blank to generate one from the name." />
      <${ErrorNote} error=${error} fields=${["name", "id"]} />
    <//><//>`;
}

function ConflictDialog({ newer, base, draft, source, busy, onClose, onReplace, onTake }) {
  const foot = html`<${Button} onClick=${onClose}>Keep editing<//><${Button} onClick=${onTake}>Discard my changes<//><${Button} kind="primary" danger busy=${busy} onClick=${onReplace}>Replace version ${newer.version} with mine<//>`;
  return html`<${Dialog} title=${`Version ${newer.version} and your changes`} wide onClose=${onClose} foot=${foot}>
    <p>Version ${newer.version} was saved while you edited version ${base.version}. From it to what you have in the editor:</p>
    <${Lazy} load=${loadVersions} name="AllDifferences" from=${newer} to=${draft.blocks ? { ...draft, ...source } : draft} />
  <//>`;
}
