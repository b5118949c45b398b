// The editor of a layout: its parts, variables, and a live preview around a template.
import { call, useAction, useCall } from "../core/api.js";
import { go, guardLeaving, href, location, setQuery } from "../core/router.js";
import { Button, Confirm, ErrorNote, fieldError, Notice, PageHead, SelectField, Skeleton, Tabs, TextField, toast } from "../core/ui.js";
import { html, plural, useEffect, useState } from "../core/view.js";
import { Editor } from "../parts/editor.js";
import { allNames, Rendered, SampleFields, usePreview } from "../parts/live_preview.js";
import { filled, keepData, keepSamples, keptData, keptSamples, namesBeside, parsedData, usedNames } from "../parts/template_samples.js";
import { declaredOf, Variables } from "../parts/template_variables.js";

const START = { html: "<!doctype html>\n<html lang=\"en\">\n<body>\n<main>\n{{{content}}}\n</main>\n<p>{{company}}</p>\n</body>\n</html>\n", text: "{{{content}}}\n\n-- \n{{company}}\n", variables: [{ name: "company", default: "Shop Ltd." }] };
const BACK = ["/templates?tab=layouts", "Layouts"];
const FIELDS = ["id", "name", "html", "text"];
const KEPT = "layout."; // before the id, where samples are kept; ids of templates have no dot

/** The page of layout `id`, or of a new one. */
export function LayoutEditor({ id = null }) {
  const state = useCall("GET /v1/layouts/{id}", { path: { id } }, { skip: !id });
  if (id && !state.data) return html`<${PageHead} title="Layout" back=${BACK} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} lines=${8} />`}`;
  return html`<${EditorPage} key=${id ?? "new"} id=${id} saved=${state.data ?? START} />`;
}

const fieldsOf = (layout) => ({ id: layout.id ?? "", name: layout.name ?? "", html: layout.html, text: layout.text ?? "", variables: declaredOf(layout) });

const requestOf = (draft) => ({ name: draft.name || null, html: draft.html, text: draft.text || null, variables: draft.variables.filter((one) => one.name) });

const namesOf = ({ html: source, text }) => usedNames({ html: source, text }).filter((name) => name !== "content");

function EditorPage({ id, saved }) {
  const [draft, setDraft] = useState(fieldsOf(saved));
  const [base, setBase] = useState(saved); // the version that the draft was made from
  const [deleting, setDeleting] = useState(false);
  const [around, setAround] = useState(saved.templates?.[0] ?? "");
  const [samples, setSamples] = useState(() => keptSamples(KEPT + (id ?? "new")));
  const [json, setJson] = useState(() => keptData(KEPT + (id ?? "new")));
  const tab = location.value.query.get("part") ?? "html";
  const set = (changes) => setDraft((old) => ({ ...old, ...changes }));
  const changed = JSON.stringify(draft) !== JSON.stringify(fieldsOf(base));
  useEffect(() => (changed ? guardLeaving("This layout has unsaved changes. Leave and discard them?") : undefined), [changed]);
  const [save, saving] = useAction(() => (id ? call("PATCH /v1/layouts/{id}", { path: { id }, body: { ...requestOf(draft), ifVersion: base.version } }) : call("POST /v1/layouts", { body: { ...requestOf(draft), ...(draft.id && { id: draft.id }) } })));
  const template = useCall("GET /v1/templates/{id}", { path: { id: around }, quiet: true }, { skip: !around }).data;
  const inside = around && template ? { ...template, layout: "this" } : { layout: "this" };
  const { data } = parsedData(json);
  const variables = [...(inside.variables ?? []), ...draft.variables];
  const names = namesBeside(allNames(inside, draft), data, variables);
  const shown = usePreview("POST /v1/layouts/preview", { html: draft.html, text: draft.text || null, variables: requestOf(draft).variables, template: around || null, values: filled(names, samples, variables), data });
  const submit = async () => {
    const reply = await save();
    if (!reply) return;
    guardLeaving("")();
    if (!id) {
      toast("Layout created");
      keepSamples(KEPT + reply.id, samples);
      keepData(KEPT + reply.id, json);
      go(`/layouts/${reply.id}`, { replace: true });
      return;
    }
    toast(reply.version === base.version ? "Saved without a new version" : `Version ${reply.version} saved${reply.templates.length ? `, with the next version of ${plural(reply.templates.length, "template")}` : ""}`);
    setBase(reply);
    setDraft(fieldsOf(reply));
  };
  const reread = async () => {
    const newer = await call("GET /v1/layouts/{id}", { path: { id } });
    setBase(newer);
    setDraft(fieldsOf(newer));
    saving.clear();
  };
  const conflict = id && saving.error?.type === "conflict";
  const problem = saving.error ?? shown.error;
  const wrong = (part) => fieldError(problem, part);
  const line = problem?.details.line ?? null;
  const uses = base.templates ?? [];
  const tabs = [["html", "HTML"], ["text", "Text"], ["variables", `Variables (${draft.variables.length})`]];
  const remove = id && html`<${Button} kind="plain" icon="trash-2" role="member" why=${uses.length ? `It is used by ${plural(uses.length, "template")}.` : null} onClick=${() => setDeleting(true)}>Delete<//>`;
  const actions = html`${remove}<${Button} kind="primary" role="member" busy=${saving.busy} why=${changed || !id ? null : "No changes to save."} onClick=${submit}>${id ? "Save" : "Create layout"}<//>`;
  return html`<${PageHead} title=${id ? base.name ?? id : "New layout"} back=${BACK} lead=${id ? `Version ${base.version}. A save publishes the next version of each template that uses it; sends use it at once.` : "The frame that templates share. {{{content}}} is where the template goes."} actions=${actions} />
    <div class="stack">
      ${conflict ? html`<${Notice} tone="warn" title="Someone else has saved this layout since you opened it." action=${html`<${Button} onClick=${reread}>Discard mine and load theirs<//>`}>Your changes are still here, but not saved.<//>` : html`<${ErrorNote} error=${saving.error} fields=${FIELDS} />`}
      <div class="columns">
        ${!id && html`<${TextField} label="Id" value=${draft.id} onValue=${(value) => set({ id: value })} placeholder="brand" error=${wrong("id")} hint="Templates use this id. Lower-case letters, digits and hyphens. Leave blank to generate one from the name." />`}
        <${TextField} label="Name" maxlength="120" value=${draft.name} onValue=${(name) => set({ name })} error=${wrong("name")} hint="Shown in the console. Optional." />
        <${Around} value=${around} onValue=${setAround} />
      </div>
      ${uses.length > 0 && html`<p class="soft">Used by ${uses.map((one, at) => html`${at > 0 && ", "}<a href=${href(`/templates/${one}`)}>${one}</a>`)}.</p>`}
      <div class="template-columns">
        <div><${Tabs} label="Parts of the layout" items=${tabs} current=${tab} onSelect=${(key) => setQuery({ part: key === "html" ? null : key })} />
          ${tab === "html" && html`<${Editor} key="html" label="HTML" value=${draft.html} onValue=${(value) => set({ html: value })} error=${wrong("html")} line=${wrong("html") && line} hint="Use {{{content}}} exactly once, outside of sections. Other tags are variables, as in a template." />`}
          ${tab === "text" && html`<${Editor} key="text" label="Text" language="text" value=${draft.text} onValue=${(text) => set({ text })} error=${wrong("text")} line=${wrong("text") && line} hint="Use {{{content}}} once. Leave blank to send the template's text on its own." />`}
          ${tab === "variables" && html`<${Variables} names=${namesOf(draft)} variables=${draft.variables} onVariables=${(variables) => set({ variables })} />`}
        </div>
        <div class="stack"><${SampleFields} names=${names} variables=${variables} samples=${samples} onSamples=${(next) => { setSamples(next); keepSamples(KEPT + (id ?? "new"), next); }} data=${json} onData=${(next) => { setJson(next); keepData(KEPT + (id ?? "new"), next); }} /><${Rendered} state=${shown} title="Preview of the layout" /></div>
      </div>
    </div>
    ${deleting && html`<${Confirm} title=${`Delete the layout ${base.name ?? id}?`} typed=${id} confirm="Delete layout" action=${() => call("DELETE /v1/layouts/{id}", { path: { id } })} onClose=${(done) => { setDeleting(false); if (done) { guardLeaving("")(); toast(`Layout ${id} deleted`); go("/templates?tab=layouts"); } }}>No template uses it. Published template versions that include it are unaffected.<//>`}`;
}

/** The template that the preview shows in the layout. */
function Around({ value, onValue }) {
  const templates = useCall("GET /v1/templates", { query: { limit: 100 }, quiet: true });
  const options = [["", "A sample text"], ...(templates.data?.data ?? []).map((one) => [one.id, one.name ?? one.id])];
  if (value && !options.some(([one]) => one === value)) options.push([value, value]);
  return html`<${SelectField} label="Show around" value=${value} onValue=${onValue} options=${options} hint="Used only for the preview." />`;
}
