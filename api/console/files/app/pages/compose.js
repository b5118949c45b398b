// Send one message: write it, or fill a template; check it; send it; watch its waybill.
import { call, session, useAction, useCall } from "../core/api.js";
import { go, guardLeaving, location } from "../core/router.js";
import { isDark } from "../core/shell.js";
import { Button, Card, CheckField, Dialog, ErrorNote, Facts, fieldError, Form, Icon, Notice, PageHead, Segments, SelectField, TextField, toast } from "../core/ui.js";
import { bytes, dateTime, html, instant, plural, useEffect, useMemo, useRef, useState } from "../core/view.js";
import { findings } from "../parts/checks.js";
import { ComposePreview } from "../parts/compose_preview.js";
import { base64 } from "../parts/file_content.js";
import { DataField, useLayout } from "../parts/live_preview.js";
import { Preview } from "../parts/preview.js";
import { SendChecks } from "../parts/send_checks.js";
import { parsedData } from "../parts/template_samples.js";

const FIELDS = ["from", "to", "cc", "bcc", "subject", "text", "html", "template", "variables", "data", "stream", "tags", "scheduledAt", "attachments", "retainContent"];
const SIMULATED = [["delivered", "is delivered"], ["bounced", "bounces"], ["deferred", "is delivered on the second attempt"], ["complained", "is delivered, then reported as spam"]];
const MAX_FILE_BYTES = 10_000_000;
const EMPTY = { from: "", to: "", cc: "", subject: "", text: "", html: "", template: "", variables: {}, data: "", stream: "", tags: "", scheduledAt: "", attachments: [], forget: false };

export function Compose({ service }) {
  const given = location.peek().query;
  const [draft, setDraft] = useState({ ...EMPTY, to: given.get("to") ?? "", template: given.get("template") ?? "" });
  const [kind, setKind] = useState(given.get("template") ? "template" : "written");
  const [foreseen, setForeseen] = useState(null);
  const key = useRef(crypto.randomUUID()); // one key a draft: pressing twice, or after a lost answer, sends once
  const set = (changes) => setDraft((old) => ({ ...old, ...changes }));
  const domains = useCall("GET /v1/domains", { query: { limit: 100 } });
  const streams = useCall("GET /v1/streams", { query: { limit: 100 } });
  const templates = useCall("GET /v1/templates", { query: { limit: 100 } });
  const template = useCall("GET /v1/templates/{id}", { path: { id: draft.template } }, { skip: kind !== "template" || !draft.template }).data;
  const verified = (domains.data?.data ?? []).filter((one) => one.status === "verified");
  useEffect(() => { if (!draft.from && verified.length) set({ from: `${session.value.account.name} <hello@${verified[0].name}>` }); }, [verified.length]);
  const written = draft.subject || draft.text || draft.html;
  useEffect(() => (written ? guardLeaving("This message wasn't sent. Leave and discard it?") : undefined), [Boolean(written)]);
  const body = useMemo(() => requestOf(draft, kind), [draft, kind]);
  const [check, checking] = useAction(() => call("POST /v1/emails", { body: { ...body, dryRun: true } }));
  const [send, sending] = useAction(() => call("POST /v1/emails", { body: { ...body, idempotencyKey: key.current } }));
  const error = sending.error ?? checking.error;
  const review = async () => {
    sending.clear();
    const reply = await check();
    if (reply) setForeseen(reply);
  };
  const finish = async () => {
    const reply = await send();
    if (!reply) {
      setForeseen(null);
      return;
    }
    guardLeaving("")();
    toast(reply.status === "scheduled" ? "Scheduled" : "Accepted");
    setDraft(EMPTY);
    go(`/messages/${reply.id}`, { replace: true });
  };
  const problem = (field) => fieldError(error, field);
  if (domains.data && verified.length === 0) {
    return html`<${PageHead} title="Send a message" back=${["/messages", "Messages"]} /><${Notice} tone="warn" title="No domain is verified." action=${html`<${Button} to="/domains">Set up a domain<//>`}>You need a verified domain to send from.<//>`;
  }
  return html`<${PageHead} title="Send a message" back=${["/messages", "Messages"]} lead="You see a check and a preview before anything is sent." />
    <div class="template-columns"><${Form} onSubmit=${review}>
      <${TextField} label="From" required value=${draft.from} onValue=${(from) => set({ from })} error=${problem("from")} hint=${`An address at ${verified.map((one) => one.name).slice(0, 3).join(", ") || "a verified domain"}, with or without a name.`} />
      <${TextField} label="To" required value=${draft.to} onValue=${(to) => set({ to })} error=${problem("to")} hint="One or more addresses, separated by commas." />
      <${Suggested} service=${service} onChoose=${(to) => set({ to })} />
      <${Segments} label="Content" options=${[["written", "Write a message"], ["template", "Use a template"]]} value=${kind} onValue=${setKind} />
      ${kind === "template" ? html`<${FromTemplate} draft=${draft} set=${set} template=${template} templates=${templates.data?.data ?? []} problem=${problem} />` : html`<${Written} draft=${draft} set=${set} problem=${problem} />`}
      <details><summary>More: copies, stream, tags, time, attachments, retention</summary><div class="stack details-body">
        <${TextField} label="Copies (cc)" value=${draft.cc} onValue=${(cc) => set({ cc })} error=${problem("cc")} />
        <${SelectField} label="Stream" value=${draft.stream} onValue=${(stream) => set({ stream })} options=${[["", "Default (transactional)"], ...(streams.data?.data ?? []).map((one) => [one.id, one.name])]} error=${problem("stream")} />
        <${TextField} label="Tags" value=${draft.tags} onValue=${(tags) => set({ tags })} error=${problem("tags")} hint="Separated by commas. You can search messages by tag." />
        <${TextField} label="Send at" type="datetime-local" value=${draft.scheduledAt} onValue=${(scheduledAt) => set({ scheduledAt })} error=${problem("scheduledAt")} hint="Leave blank to send now." />
        <${Files} files=${draft.attachments} onFiles=${(attachments) => set({ attachments })} error=${problem("attachments")} />
        <${CheckField} label="Delete the content after delivery" checked=${draft.forget} onChecked=${(forget) => set({ forget })} hint="Text and attachments are encrypted until the last recipient has an outcome, and then deleted. The record stays." />
      </div></details>
      <${ErrorNote} error=${error} fields=${FIELDS} />
      <div class="form-actions"><${Button} kind="primary" type="submit" icon="arrow-right" role="member" busy=${checking.busy}>Check and preview<//></div>
    <//>
    <div class="compose-preview"><${ComposePreview} kind=${kind} draft=${draft} template=${draft.template ? template : null} values=${givenOf(draft)} data=${parsedData(draft.data).data ?? null} /></div></div>
    ${foreseen && html`<${Review} message=${foreseen.message} checks=${foreseen.checks} forecast=${foreseen.forecast} status=${foreseen.status} busy=${sending.busy} onSend=${finish} onClose=${() => setForeseen(null)} />`}`;
}

const addresses = (text) => text.split(/[,;\n]+/).map((one) => one.trim()).filter(Boolean);

/** Return the request of a draft: only what is filled in. */
function requestOf(draft, kind) {
  const content = kind === "template" ? { template: draft.template, variables: givenOf(draft), ...(parsedData(draft.data).data && { data: parsedData(draft.data).data }), ...(draft.subject && { subject: draft.subject }) } : { subject: draft.subject, ...(draft.text && { text: draft.text }), ...(draft.html && { html: draft.html }) };
  return {
    from: draft.from,
    to: addresses(draft.to),
    ...content,
    ...(draft.cc && { cc: addresses(draft.cc) }),
    ...(draft.stream && { stream: draft.stream }),
    ...(draft.tags && { tags: draft.tags.split(",").map((one) => one.trim()).filter(Boolean) }),
    ...(draft.scheduledAt && { scheduledAt: instant(draft.scheduledAt) }),
    ...(draft.forget && { retainContent: false }),
    ...(draft.attachments.length && { attachments: draft.attachments.map(({ filename, contentType, content: data }) => ({ filename, contentType, content: data })) }),
  };
}

/** Return the values typed for the variables; `data` gives the names that it holds. */
function givenOf(draft) {
  const { data } = parsedData(draft.data);
  return Object.fromEntries(Object.entries(draft.variables).filter(([name, value]) => value !== "" || !Object.hasOwn(data ?? {}, name)));
}

/** Recipients for a try: one's own address, and those of the simulator. */
function Suggested({ service, onChoose }) {
  const host = service.mailHost;
  return html`<div class="row small"><span class="soft">Try it with:</span>
    <button type="button" class="link-button" onClick=${() => onChoose(session.value.user.email)}>yourself</button>
    ${host && SIMULATED.map(([name, does]) => html`<button type="button" class="link-button" title=${`A test recipient: the message ${does}`} onClick=${() => onChoose(`${name}@simulator.${host}`)}>${name}</button>`)}</div>`;
}

function Written({ draft, set, problem }) {
  return html`<${TextField} label="Subject" required maxlength="998" value=${draft.subject} onValue=${(subject) => set({ subject })} error=${problem("subject")} />
    <${TextField} label="Text" rows=${6} value=${draft.text} onValue=${(text) => set({ text })} error=${problem("text")} />
    <${TextField} label="HTML" rows=${6} mono spellcheck=${false} value=${draft.html} onValue=${(value) => set({ html: value })} error=${problem("html")} hint="Text, HTML or both." />`;
}

function FromTemplate({ draft, set, template, templates, problem }) {
  const layout = useLayout(template?.layout);
  const own = template?.variables ?? [];
  const variables = [...own, ...(template?.layout && layout ? layout.variables : []).filter((one) => !own.some((other) => other.name === one.name))];
  const { data } = parsedData(draft.data);
  return html`<${SelectField} label="Template" required value=${draft.template} onValue=${(template) => set({ template, variables: {}, data: "" })} options=${[["", "Choose a template"], ...templates.map((one) => [one.id, one.name ?? one.id])]} error=${problem("template")} />
    ${variables.map((one) => html`<${TextField} key=${one.name} label=${`{{${one.name}}}`} required=${(one.required && one.default === null && !Object.hasOwn(data ?? {}, one.name)) ?? false} value=${draft.variables[one.name] ?? ""} onValue=${(value) => set({ variables: { ...draft.variables, [one.name]: value } })} />`)}
    <${DataField} data=${draft.data} onData=${(text) => set({ data: text })} error=${problem("data")} />
    ${problem("variables") && html`<${Notice} tone="bad">${problem("variables")}<//>`}`;
}

function Files({ files, onFiles, error }) {
  const [refused, setRefused] = useState(null);
  const add = async (event) => {
    const chosen = [...event.currentTarget.files];
    const large = chosen.find((file) => file.size > MAX_FILE_BYTES);
    setRefused(large ? `${large.name} has ${bytes(large.size)}; the limit here is ${bytes(MAX_FILE_BYTES)}. Attach a smaller file.` : null);
    const read = await Promise.all(chosen.filter((file) => file.size <= MAX_FILE_BYTES).map(async (file) => ({ filename: file.name, contentType: file.type || "application/octet-stream", size: file.size, content: await base64(file) })));
    onFiles([...files, ...read]);
  };
  return html`<div class="field"><label for="files">Attachments</label><input class="input" id="files" type="file" multiple onChange=${add} />
    ${(refused || error) && html`<span class="error" role="alert">${refused ?? error}</span>`}
    ${files.length > 0 && html`<ul>${files.map((file, at) => html`<li class="row"><${Icon} name="paperclip" />${file.filename} <span class="soft">${bytes(file.size)}</span><${Button} kind="quiet" icon="x" label=${`Remove ${file.filename}`} onClick=${() => onFiles(files.filter((_, other) => other !== at))} /></li>`)}</ul>`}</div>`;
}

/** What would go out, with findings; sending is one more press. */
function Review({ message, checks, forecast, status, busy, onSend, onClose }) {
  const recipients = [...message.to, ...message.cc, ...message.bcc];
  const suppressed = useSuppressed(recipients);
  const allowance = useCall("GET /v1/me", { quiet: true });
  const left = allowance.data?.sending.remainingToday;
  const foot = html`<${Button} onClick=${onClose}>Keep editing<//><${Button} kind="primary" icon="send" busy=${busy} onClick=${onSend}>${status === "scheduled" ? "Schedule" : "Send"} to ${plural(recipients.length, "recipient")}<//>`;
  return html`<${Dialog} title="Check before sending" wide onClose=${onClose} foot=${foot}>
    <${Facts} items=${[["Subject", message.subject || "(empty)"], ["To", recipients.join(", ")], ["Size", `${bytes(message.sizeBytes)} as sent`], message.scheduledAt && ["At", dateTime(message.scheduledAt)], left != null && ["Allowance", `${plural(left, "message")} left today; this message uses ${recipients.length}`]]} />
    ${suppressed.length > 0 && html`<${Notice} tone="warn" title="Suppressed:">${suppressed.join(", ")} won't get this message.<//>`}
    <ul class="stack-tight">${findings(message).map((one) => html`<li class="row"><span class=${one.tone}><${Icon} name=${one.tone === "good" ? "circle-check" : "triangle-alert"} /></span><span class="grow">${one.text}</span></li>`)}</ul>
    ${forecast && html`<p>${forecast.warning ?? forecast.text}</p>`}
    <${SendChecks} checks=${checks} />
    <${Preview} html=${message.html} text=${message.text} dark=${isDark()} title="Preview" />
  <//>`;
}

const MAX_LOOKED_UP = 5;

/** Return those of the first few addresses that are suppressed. */
function useSuppressed(recipients) {
  const [found, setFound] = useState([]);
  useEffect(() => {
    let alive = true;
    Promise.all(recipients.slice(0, MAX_LOOKED_UP).map((address) => call("GET /v1/suppressions/{address}", { path: { address: bare(address) }, quiet: true }).then((one) => one.address, () => null)))
      .then((all) => alive && setFound(all.filter(Boolean)));
    return () => { alive = false; };
  }, [recipients.join()]);
  return found;
}

const bare = (address) => /<([^>]+)>/.exec(address)?.[1] ?? address;
