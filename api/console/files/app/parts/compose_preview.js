// The message being written as its reader sees it, beside the form; templates are rendered by the service.
import { Card } from "../core/ui.js";
import { html } from "../core/view.js";
import { allNames, Rendered, useLayout, useRendered } from "./live_preview.js";
import { filled, namesBeside } from "./template_samples.js";

/** The preview of a `draft` that is written, or of `template` (null until it is chosen) with `values` and `data`. */
export function ComposePreview({ kind, draft, template, values, data }) {
  const hint = kind === "written" ? !(draft.subject || draft.html || draft.text) && "Your message appears here as the recipient sees it." : !template && "Choose a template to see the message.";
  if (hint) return html`<${Card} title="Preview"><p class="soft">${hint}</p><//>`;
  if (kind === "written") return html`<${Rendered} state=${{ reply: { subject: draft.subject, html: draft.html, text: draft.text, warnings: [] }, error: null }} title="Preview" />`;
  return html`<${Filled} key=${template.id} ...${{ template, subject: draft.subject, values, data }} />`;
}

/** A template with the given values; those that are still missing are shown as samples. */
function Filled({ template, subject, values, data }) {
  const content = { ...template, subject: subject || template.subject };
  const layout = useLayout(template.layout);
  const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ""));
  const names = namesBeside(allNames(content, layout), data, template.variables);
  return html`<${Rendered} state=${useRendered(content, filled(names, given, template.variables), data)} title="Preview" />`;
}
