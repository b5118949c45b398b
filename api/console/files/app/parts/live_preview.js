// Content with variables as a reader would see it, rendered by the service a moment after each change.
import { ApiError, call, useCall } from "../core/api.js";
import { isDark } from "../core/shell.js";
import { Button, Card, Icon, Notice, Skeleton, TextField } from "../core/ui.js";
import { html, plural, useEffect, useRef, useState } from "../core/view.js";
import { findings } from "./checks.js";
import { Preview } from "./preview.js";
import { parsedData, usedNames, valueOf } from "./template_samples.js";

const DELAY_MS = 400;

/** Return the layout `id` while a template is edited or sent; null without one, and until it is read. */
export function useLayout(id) {
  return useCall("GET /v1/layouts/{id}", { path: { id }, quiet: true }, { skip: !id }).data;
}

/** Return the names that the tags of a template, and those of its layout, use. */
export const allNames = (content, layout) => [...new Set([...usedNames(content), ...(layout && content.layout ? usedNames({ html: layout.html, text: layout.text }).filter((name) => name !== "content") : [])])];

/** Render `content` {subject, html, text, blocks, variables, layout} with `values` and `data` as `usePreview` does. */
export function useRendered(content, values, data = null) {
  const parts = content.blocks ? { blocks: content.blocks } : { html: content.html || null, text: content.text || null };
  return usePreview("POST /v1/templates/preview", { subject: content.subject || null, ...parts, variables: content.variables ?? [], layout: content.layout || null, values, data });
}

/**
 * Call the `operation` of a preview after typing pauses: {reply, error}.
 *
 * The last good reply stays while there is an error. Only one request is under way at a time.
 */
export function usePreview(operation, request) {
  const [state, setState] = useState({ reply: null, error: null });
  const running = useRef(null);
  const body = JSON.stringify(request);
  useEffect(() => {
    const timer = setTimeout(async () => {
      running.current?.abort();
      const abort = new AbortController();
      running.current = abort;
      try {
        const reply = await call(operation, { body, quiet: true, signal: abort.signal });
        setState({ reply, error: null });
      } catch (error) {
        if (abort.signal.aborted) return;
        if (!(error instanceof ApiError)) throw error;
        setState((old) => ({ ...old, error }));
      }
    }, DELAY_MS);
    return () => clearTimeout(timer);
  }, [body]);
  useEffect(() => () => running.current?.abort(), []);
  return state;
}

/** The field for the JSON of `data`: lists and objects. */
export function DataField({ data, onData, error = null }) {
  return html`<${TextField} label="Data (JSON)" rows=${3} mono spellcheck=${false} value=${data} onValue=${onData} error=${parsedData(data).problem ?? error} hint=${'Lists and objects for sections, such as {"items": [{"title": "Lamp"}]}. Optional.'} />`;
}

/** Fields for the sample values of `names`, and for `data` if `onData` is given. */
export function SampleFields({ names, variables, samples, onSamples, data, onData, hint }) {
  const [opened] = useState(Boolean(data)); // at first only, so that it does not close while it is edited
  if (names.length === 0 && !onData) return null;
  const reset = Object.keys(samples).length > 0 && html`<${Button} kind="quiet" onClick=${() => onSamples({})}>Reset<//>`;
  return html`<${Card} title="Sample values" actions=${reset}><div class="template-samples">${names.map((name) => html`<${TextField} key=${name} label=${name} value=${valueOf(name, samples, variables)} onValue=${(value) => onSamples({ ...samples, [name]: value })} />`)}</div>
    ${onData && html`<details class="details-body" open=${opened}><summary>Lists and objects</summary><div class="details-body"><${DataField} data=${data} onData=${onData} /></div></details>`}
    <p class="soft small details-body">${hint ?? "For the preview and tests. Stored only in this browser."}</p><//>`;
}

/** The rendered message with what to look at; `state` is what `useRendered` returned, `notes` are further findings. */
export function Rendered({ state, title, notes = [] }) {
  const { reply, error } = state;
  const found = reply ? [...reply.warnings.map((one) => ({ tone: "warn", text: one.message })), ...notes, ...findings({ ...reply, html: reply.html ?? "", text: reply.text ?? "", sizeBytes: 0 }).filter((one) => one.tone !== "good")] : [];
  return html`<div class="stack">
    ${error && html`<${Notice} tone="bad" title="Not rendered:">${error.message}<//>`}
    ${reply ? html`<${Card} title="Preview">${reply.subject !== undefined && html`<p class="preview-subject wrap"><span class="soft">Subject:</span> ${reply.subject || "(no subject)"}</p>`}${reply.html || reply.text ? html`<${Preview} key=${Boolean(reply.html)} html=${reply.html} text=${reply.text} dark=${isDark()} title=${title} />` : html`<p class="soft">No content yet. Write HTML, text or both.</p>`}<//>` : !error && html`<${Skeleton} lines=${6} />`}
    ${found.length > 0 && html`<details><summary>${plural(found.length, "note")}</summary><ul class="details-body stack-tight">${found.map((one) => html`<li class="row"><span class=${one.tone}><${Icon} name="triangle-alert" size=${14} /></span><span class="grow small">${one.text}</span></li>`)}</ul></details>`}
  </div>`;
}
