// Content with variables as a reader would see it, rendered by the service a moment after each change.
import { ApiError, call } from "../core/api.js";
import { isDark } from "../core/shell.js";
import { Button, Card, Icon, Notice, Skeleton, TextField } from "../core/ui.js";
import { html, plural, useEffect, useRef, useState } from "../core/view.js";
import { findings } from "./checks.js";
import { Preview } from "./preview.js";
import { valueOf } from "./template_samples.js";

const DELAY_MS = 400;

/**
 * Render `content` {subject, html, text, variables} with `values` after typing pauses: {reply, error}.
 *
 * The last good reply stays while there is an error. Only one request is under way at a time.
 */
export function useRendered(content, values) {
  const [state, setState] = useState({ reply: null, error: null });
  const running = useRef(null);
  const body = JSON.stringify({ subject: content.subject || null, html: content.html || null, text: content.text || null, variables: content.variables ?? [], values });
  useEffect(() => {
    const timer = setTimeout(async () => {
      running.current?.abort();
      const abort = new AbortController();
      running.current = abort;
      try {
        const reply = await call("POST /v1/templates/preview", { body, quiet: true, signal: abort.signal });
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

/** Fields for the sample values of `names`. */
export function SampleFields({ names, samples, onSamples, hint }) {
  if (names.length === 0) return null;
  const reset = Object.keys(samples).length > 0 && html`<${Button} kind="quiet" onClick=${() => onSamples({})}>Reset<//>`;
  return html`<${Card} title="Sample values" actions=${reset}><div class="template-samples">${names.map((name) => html`<${TextField} key=${name} label=${name} value=${valueOf(name, samples)} onValue=${(value) => onSamples({ ...samples, [name]: value })} />`)}</div>
    <p class="soft small details-body">${hint ?? "For the preview and for tests; kept in this browser only."}</p><//>`;
}

/** The rendered message with what to look at; `state` is what `useRendered` returned, `notes` are further findings. */
export function Rendered({ state, title, notes = [] }) {
  const { reply, error } = state;
  const found = reply ? [...reply.warnings.map((one) => ({ tone: "warn", text: one.message })), ...notes, ...findings({ ...reply, html: reply.html ?? "", text: reply.text ?? "", sizeBytes: 0 }).filter((one) => one.tone !== "good")] : [];
  return html`<div class="stack">
    ${error && html`<${Notice} tone="bad" title="Not rendered:">${error.message}<//>`}
    ${reply ? html`<${Card} title=${reply.subject || "(no subject)"}>${reply.html || reply.text ? html`<${Preview} key=${Boolean(reply.html)} html=${reply.html} text=${reply.text} dark=${isDark()} title=${title} />` : html`<p class="soft">There is no content yet: write HTML, text, or both.</p>`}<//>` : !error && html`<${Skeleton} lines=${6} />`}
    ${found.length > 0 && html`<details><summary>${plural(found.length, "note")}</summary><ul class="details-body stack-tight">${found.map((one) => html`<li class="row"><span class=${one.tone}><${Icon} name="triangle-alert" size=${14} /></span><span class="grow small">${one.text}</span></li>`)}</ul></details>`}
  </div>`;
}
