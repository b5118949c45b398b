// Block mode in the editors of templates and broadcasts: the composer, the HTML made of its blocks, and leaving it.
import { Lazy } from "../core/shell.js";
import { Button, Code, Confirm, Notice } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { usedNames } from "./template_samples.js";

const loadComposer = () => import("./composer.js");
const loadStart = () => import("./composer_start.js");

/** The choice that a new email, or one written as HTML, begins block mode with. */
export const StartFrom = (choices) => html`<${Lazy} load=${loadStart} name="StartFrom" ...${choices} />`;

/** The composer of `content` {subject, blocks}; `names` are merge fields besides those in use, `error` is the preview's. */
export function BlockEditor({ content, names, error, onBlocks }) {
  const fields = [...new Set([...names, ...usedNames(content)])];
  const ofBlock = error?.details?.field?.startsWith("blocks.blocks");
  return html`<div class="stack">${error && !ofBlock && html`<${Notice} tone="bad" title="Not rendered:">${error.message}<//>`}
    <${Lazy} load=${loadComposer} name="Composer" doc=${content.blocks} onDoc=${onBlocks} fields=${fields} problem=${error} /></div>`;
}

/** The `source` {html, text} made of the blocks, part by part, with the way to edit it by hand. */
export function MadeOfBlocks({ part, source, onLeave }) {
  const [asking, setAsking] = useState(false);
  if (!source) return html`<${Notice}>It appears here once the blocks can be rendered.<//>`;
  return html`<div class="stack">
    <${Notice} action=${part === "html" && html`<${Button} role="member" onClick=${() => setAsking(true)}>Edit the HTML<//>`}>The service makes this ${part === "html" ? "HTML" : "text"} from the blocks.<//>
    <${Code} text=${source[part] ?? ""} label=${part === "html" ? "HTML" : "Text"} />
    ${asking && html`<${Confirm} title="Edit the HTML instead of the blocks?" confirm="Edit the HTML" action=${async () => {}} onClose=${(sure) => { setAsking(false); if (sure) onLeave(source); }}><p>The HTML can't be turned back into blocks. When you save, the blocks are removed.</p><p>Earlier versions of a template keep their blocks.</p><//>`}
  </div>`;
}
