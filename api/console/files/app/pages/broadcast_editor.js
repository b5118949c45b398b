// The editor of a broadcast's draft: audience, sender, content with a live preview for one contact, stream and pace.
import { call, session, useAction, useCall } from "../core/api.js";
import { go, guardLeaving, location } from "../core/router.js";
import { Lazy } from "../core/shell.js";
import { Button, Confirm, ErrorNote, fieldError, Form, Notice, PageHead, Segments, SelectField, Skeleton, TextField, toast } from "../core/ui.js";
import { html, plural, useEffect, useState } from "../core/view.js";
import { allNames, Rendered, useLayout, useRendered } from "../parts/live_preview.js";
import { useVerifiedDomains } from "../parts/sender_field.js";
import { BlockEditor, StartFrom } from "../parts/template_blocks.js";

const loadEditor = () => import("../parts/editor.js");
const EMPTY = { name: "", from: "", replyTo: "", audience: "", stream: "", template: "", subject: "", html: "", text: "", perMinute: "" };
const FIELDS = ["name", "list", "segment", "from", "replyTo", "stream", "perMinute", "template", "subject", "html", "text"];
const UNSUBSCRIBE = "unsubscribe_url";
const KINDS = [["blocks", "Blocks"], ["written", "HTML"], ["template", "From a template"]];

/** The page of draft `id`, or of a new broadcast; `?copy=` names a broadcast to begin from, `?list=` or `?segment=` its audience. */
export function BroadcastEditor({ id = null }) {
  const given = location.peek().query;
  const source = id ?? given.get("copy");
  const state = useCall("GET /v1/broadcasts/{id}", { path: { id: source } }, { skip: !source });
  const back = id ? [`/broadcasts/${id}`, "Broadcast"] : ["/broadcasts", "Broadcasts"];
  const title = id ? "Edit broadcast" : "New broadcast";
  if (source && !state.data) return html`<${PageHead} title=${title} back=${back} />${state.error ? html`<${ErrorNote} error=${state.error} retry=${state.reload} />` : html`<${Skeleton} lines=${8} />`}`;
  if (id && state.data.status !== "draft") return html`<${PageHead} title=${title} back=${back} /><${Notice} tone="warn" action=${html`<${Button} to="/broadcasts/new" query=${{ copy: id }}>Copy to a new draft<//>`}>It is ${state.data.status.replaceAll("_", " ")}: only a draft can be changed.<//>`;
  const audience = given.get("list") ? `list ${given.get("list")}` : given.get("segment") ? `segment ${given.get("segment")}` : "";
  const start = state.data ? fieldsOf(state.data) : { ...EMPTY, blocks: null, audience };
  if (!id && state.data) start.name = `${start.name} (copy)`.slice(0, 120);
  return html`<${DraftForm} key=${id ?? "new"} id=${id} start=${start} head=${{ title, back }} lostFiles=${id ? 0 : state.data?.attachments.length ?? 0} />`;
}

function fieldsOf(saved) {
  const audience = saved.list ? `list ${saved.list}` : saved.segment ? `segment ${saved.segment}` : "";
  return { ...EMPTY, ...Object.fromEntries(Object.keys(EMPTY).map((name) => [name, saved[name] ?? ""])), blocks: saved.blocks ?? null, audience, perMinute: saved.perMinute ? String(saved.perMinute) : "" };
}

const kindOf = (draft) => (draft.template ? "template" : draft.html || draft.text ? (draft.blocks ? "blocks" : "written") : "blocks");

/** Return the request of a draft; a field that was emptied is null. The service makes HTML and text of blocks. */
function requestOf(draft, kind) {
  const [audience, which] = draft.audience.split(" ");
  const written = kind === "written";
  const content = kind === "blocks" && draft.blocks ? { blocks: draft.blocks } : { blocks: null, html: written ? draft.html || null : null, text: written ? draft.text || null : null };
  return {
    name: draft.name,
    from: draft.from,
    list: audience === "list" ? which : null,
    segment: audience === "segment" ? which : null,
    ...(draft.stream && { stream: draft.stream }),
    replyTo: draft.replyTo || null,
    template: kind === "template" ? draft.template || null : null,
    subject: draft.subject || null,
    ...content,
    perMinute: draft.perMinute ? Number(draft.perMinute) : null,
  };
}

function DraftForm({ id, start, head, lostFiles }) {
  const [draft, setDraft] = useState(start);
  const [kind, setKind] = useState(kindOf(start));
  const [leaving, setLeaving] = useState(null); // the kind of content that would take the place of the blocks
  const set = (changes) => setDraft((old) => ({ ...old, ...changes }));
  const domains = useVerifiedDomains();
  useEffect(() => { if (!draft.from && domains?.length) set({ from: `${session.value.account.name} <news@${domains[0]}>` }); }, [domains?.join()]);
  const changed = JSON.stringify({ ...draft, from: "" }) !== JSON.stringify({ ...start, from: "" }) || kind !== kindOf(start);
  useEffect(() => (changed ? guardLeaving("This broadcast has unsaved changes. Leave and discard them?") : undefined), [changed]);
  const [save, saving] = useAction(() => (id ? call("PATCH /v1/broadcasts/{id}", { path: { id }, body: requestOf(draft, kind) }) : call("POST /v1/broadcasts", { body: requestOf(draft, kind) })));
  const preview = useContactPreview(draft, kind);
  const choose = (next) => (kind === "blocks" && next !== kind && draft.blocks?.blocks.length ? setLeaving(next) : setKind(next));
  const submit = async (open = null) => {
    const reply = await save();
    if (!reply) return;
    guardLeaving("")();
    toast("Draft saved");
    go(`/broadcasts/${reply.id}`, { query: { open }, replace: !id });
  };
  const { error } = saving;
  const content = { blocks: BlockContent, written: WrittenContent, template: TemplateContent }[kind];
  return html`<${PageHead} ...${head} lead="Saved as a draft. You confirm sending on the next page." actions=${html`<${Button} icon="mail" role="member" busy=${saving.busy} onClick=${() => submit("test")}>Save and send a test<//><${Button} kind="primary" role="member" busy=${saving.busy} onClick=${() => submit()}>Save draft<//>`} />
    <div class="stack">
      ${domains?.length === 0 && html`<${Notice} tone="warn" title="No domain is verified." action=${html`<${Button} to="/domains">Set up a domain<//>`}>A broadcast needs a sender at a verified domain.<//>`}
      ${lostFiles > 0 && html`<${Notice} tone="warn">The original's attachments aren't copied.<//>`}
      <${ErrorNote} error=${error} fields=${FIELDS} />
      <${Details} ...${{ draft, kind, set, error }} submit=${() => submit()} />
      <div class="row"><${Segments} label="Content" options=${KINDS} value=${kind} onValue=${choose} /></div>
      <${content} ...${{ draft, set, error, preview }} />
      <div class="form-actions"><${Button} kind="primary" type="submit" form="broadcast" role="member" busy=${saving.busy}>Save draft<//></div>
    </div>
    ${leaving && html`<${Confirm} title="Leave the blocks?" confirm="Leave the blocks" action=${async () => {}} onClose=${(sure) => { setLeaving(null); if (sure) setKind(leaving); }}>HTML and templates can't be turned into blocks. When you save, the blocks are removed from this draft.<//>`}`;
}

/** The fields of every broadcast, whatever its content. */
function Details({ draft, kind, set, error, submit }) {
  const problem = (field) => fieldError(error, field);
  return html`<${Form} id="broadcast" onSubmit=${submit} style=${{ maxWidth: "none" }}><div class="columns">
      <${TextField} label="Name" required maxlength="120" value=${draft.name} onValue=${(name) => set({ name })} error=${problem("name")} hint="Only your team sees it." />
      <${AudienceField} value=${draft.audience} onValue=${(audience) => set({ audience })} error=${problem("list") ?? problem("segment")} />
      <${TextField} label="From" required value=${draft.from} onValue=${(from) => set({ from })} error=${problem("from")} hint="A name and an address at a verified domain." />
      <${TextField} label="Subject" maxlength="998" value=${draft.subject} onValue=${(subject) => set({ subject })} error=${problem("subject")} hint=${kind === "template" ? "Leave blank to use the template's subject." : "You can use {{name}} and any contact field."} />
    </div>
    <details open=${Boolean(draft.replyTo || draft.stream || draft.perMinute) || FIELDS.slice(4, 7).some(problem)}><summary>More: replies, stream, pace</summary><div class="columns details-body">
      <${TextField} label="Reply to" value=${draft.replyTo} onValue=${(replyTo) => set({ replyTo })} error=${problem("replyTo")} />
      <${StreamField} value=${draft.stream} onValue=${(stream) => set({ stream })} error=${problem("stream")} />
      <${TextField} label="Messages per minute" type="number" min="1" max="1000000" value=${draft.perMinute} onValue=${(perMinute) => set({ perMinute })} error=${problem("perMinute")} hint="Leave blank to send as fast as possible. A slower pace spreads the visits to your site." />
    </div></details>
  <//>`;
}

/** Blocks, or what they begin with; the preview takes the place of the canvas when it is asked for. */
function BlockContent({ draft, set, preview }) {
  const [shown, setShown] = useState("compose");
  if (!draft.blocks) return html`<${StartFrom} onStart=${(start) => set({ blocks: start.blocks, name: draft.name || start.name, subject: draft.subject || start.subject })} />`;
  return html`<div class="stack"><div class="row"><${Segments} label="Show" options=${[["compose", "Compose"], ["preview", "Preview"]]} value=${shown} onValue=${setShown} /></div>
    ${shown === "preview" ? html`<${ContactPreview} preview=${preview} />` : html`<${BlockEditor} content=${draft} names=${preview.fields} error=${preview.state.error} onBlocks=${(blocks) => set({ blocks })} />`}</div>`;
}

function WrittenContent({ draft, set, error, preview }) {
  const problem = (field) => fieldError(error, field);
  return html`<div class="template-columns"><div class="stack"><${Lazy} load=${loadEditor} name="Editor" label="HTML" value=${draft.html} onValue=${(value) => set({ html: value })} error=${problem("html")} line=${problem("html") && error.details.line} rows=${16} hint="Use {{name}}, {{email}} and any contact field. {{unsubscribe_url}} places the unsubscribe link; without it, a footer is added." /><${Lazy} load=${loadEditor} name="Editor" label="Text" language="text" value=${draft.text} onValue=${(text) => set({ text })} error=${problem("text")} line=${problem("text") && error.details.line} rows=${8} /></div>
    <${ContactPreview} preview=${preview} /></div>`;
}

function TemplateContent({ draft, set, error, preview }) {
  return html`<div class="template-columns"><${TemplateField} value=${draft.template} onValue=${(template) => set({ template })} error=${fieldError(error, "template")} /><${ContactPreview} preview=${preview} /></div>`;
}

/** The choice of a list or a segment, with how many contacts it has now. */
function AudienceField({ value, onValue, error }) {
  const lists = useCall("GET /v1/lists", { query: { limit: 100 } });
  const segments = useCall("GET /v1/segments", { query: { limit: 100 } });
  const [kind, id] = value.split(" ");
  const segment = useCall("GET /v1/segments/{id}", { path: { id }, quiet: true }, { skip: kind !== "segment" });
  const counted = (one) => (one.contacts == null ? "" : `: ${plural(one.contacts, "contact")}`);
  const options = [["", "Choose a list or a segment"], ...(lists.data?.data ?? []).map((one) => [`list ${one.id}`, `List ${one.name}${counted(one)}`]), ...(segments.data?.data ?? []).map((one) => [`segment ${one.id}`, `Segment ${one.name}${counted(one)}`])];
  if (value && !options.some(([one]) => one === value)) options.push([value, id]);
  if (lists.data && segments.data && options.length === 1) return html`<${Notice} tone="warn" action=${html`<${Button} to="/lists">Create a list<//>`}>You have no list or segment yet. A broadcast goes to one of them.<//>`;
  const count = kind === "segment" ? segment.data?.contacts : null;
  return html`<${SelectField} label="Audience" required value=${value} onValue=${onValue} options=${options} error=${error} hint=${`${count == null ? "" : `Now ${plural(count, "contact")}. `}Contacts in it when the broadcast starts get it; suppressed, unconfirmed and unsubscribed addresses are skipped.`} />`;
}

function TemplateField({ value, onValue, error }) {
  const templates = useCall("GET /v1/templates", { query: { limit: 100 } });
  const options = [["", "Choose a template"], ...(templates.data?.data ?? []).map((one) => [one.id, one.name ?? one.id])];
  if (value && !options.some(([one]) => one === value)) options.push([value, value]);
  return html`<${SelectField} label="Template" value=${value} onValue=${onValue} error=${error} options=${options} hint="Everyone gets the version that is the latest when you send." />`;
}

function StreamField({ value, onValue, error }) {
  const streams = useCall("GET /v1/streams", { query: { limit: 100 } });
  const all = streams.data?.data ?? [];
  const usable = all.length > 1 ? all.filter((one) => one.deletable) : all;
  const me = useCall("GET /v1/me", { quiet: true });
  const isOnly = me.data?.limits?.find((one) => one.resource === "streams")?.limit === 1;
  return html`<${SelectField} label="Stream" value=${value} onValue=${onValue} error=${error} options=${[["", `The default, ${isOnly ? "transactional" : "announcements"}`], ...usable.map((one) => [one.id, one.name])]} hint="The transactional stream isn't available, so people who unsubscribe still get receipts." />`;
}

/** Render the draft as a contact would get it while it is written; the first contact of the audience unless one is chosen. */
function useContactPreview(draft, kind) {
  const [contact, setContact] = useState("");
  const [audience, which] = draft.audience.split(" ");
  const contacts = useCall("GET /v1/contacts", { query: { limit: 20, list: audience === "list" ? which : null }, quiet: true });
  const template = useCall("GET /v1/templates/{id}", { path: { id: draft.template }, quiet: true }, { skip: kind !== "template" || !draft.template });
  const people = contacts.data?.data ?? [];
  const one = people.find((person) => person.id === contact) ?? people[0] ?? { email: "ann@example.com", name: "Ann", fields: {} };
  const stored = kind === "template" ? template.data ?? {} : kind === "blocks" ? { blocks: draft.blocks } : { html: draft.html, text: draft.text };
  const content = { subject: draft.subject || stored.subject || "", html: stored.html ?? "", text: stored.text ?? "", blocks: (kind === "blocks" && stored.blocks) || null, variables: (stored.variables ?? []).map((variable) => ({ ...variable, required: false })), layout: stored.layout };
  const names = allNames(content, useLayout(stored.layout));
  const state = useRendered(content, valuesOf(one, names));
  const fields = [...new Set(["name", "email", UNSUBSCRIBE, ...people.flatMap((person) => Object.keys(person.fields ?? {}))])];
  return { people, one, setContact, names, state, fields };
}

function ContactPreview({ preview }) {
  const { people, one, setContact, names, state } = preview;
  const missing = names.filter((name) => !["email", "name", UNSUBSCRIBE].includes(name) && !(name in (one.fields ?? {})));
  const notes = [missing.length > 0 && { tone: "warn", text: `${one.email} has no ${missing.join(", ")}: it is empty there, or its default.` }, !names.includes(UNSUBSCRIBE) && { tone: "soft", text: "A footer with the unsubscribe link is added below, because the content has no {{unsubscribe_url}}." }].filter(Boolean);
  return html`<div class="stack">
    ${people.length > 0 && html`<${SelectField} label="Preview for" value=${one.id} onValue=${setContact} options=${people.map((person) => [person.id, person.email])} />`}
    <${Rendered} state=${shownState(state)} title="Preview of the broadcast" notes=${notes} />
  </div>`;
}

/** Take out the notes that hold for templates alone: merge fields need no declaration. */
function shownState({ reply, error }) {
  return { error, reply: reply && { ...reply, warnings: reply.warnings.filter((one) => one.code !== "undeclared_variable") } };
}

/** Return the values of a contact for the names that the content uses, as the service prints them. */
function valuesOf(contact, names) {
  const all = { ...contact.fields, email: contact.email, name: contact.name ?? "", [UNSUBSCRIBE]: "https://example.com/unsubscribe" };
  const printed = (value) => (value === true ? "true" : value === false || value == null ? "" : String(value).slice(0, 5000));
  return Object.fromEntries(names.filter((name) => name in all).map((name) => [name, printed(all[name])]));
}
