// What a new email starts from: one of the starting documents of the service, empty blocks, or HTML.
import "./composer_assets.js";
import { useCall } from "../core/api.js";
import { ErrorNote, Icon } from "../core/ui.js";
import { html } from "../core/view.js";
import { emptyDocument } from "./composer_state.js";

const MAX_SKETCHED = 9;

/**
 * The choices: `onStart({name, subject, blocks, variables, data})` gets a document, `onHtml` is called for HTML; without it
 * there is no such choice.
 */
export function StartFrom({ onStart, onHtml }) {
  const starters = useCall("GET /v1/template-starters", { quiet: true });
  const blank = { name: "", subject: "", blocks: emptyDocument(), variables: [], data: {} };
  return html`<section class="stack" aria-label="Start from"><h2>Start from</h2>
    <${ErrorNote} error=${starters.error} retry=${starters.reload} />
    <ul class="cp-starts">
      ${(starters.data?.data ?? []).map((one) => html`<li key=${one.name}><${Choice} title=${one.title} text=${one.subject} blocks=${one.blocks.blocks} onChoose=${() => onStart({ name: one.title, subject: one.subject, blocks: one.blocks, variables: one.variables, data: one.data })} /></li>`)}
      <li><${Choice} title="Blank" text="An empty email to fill with blocks" icon="plus" onChoose=${() => onStart(blank)} /></li>
      ${onHtml && html`<li><${Choice} title="HTML" text="Write or paste the HTML yourself" icon="code" onChoose=${onHtml} /></li>`}
    </ul>
  </section>`;
}

function Choice({ title, text, blocks = null, icon, onChoose }) {
  const sketched = (blocks ?? []).flatMap((block) => (block.type === "text" ? ["text", "text"] : [block.type])).slice(0, MAX_SKETCHED);
  return html`<button type="button" class="cp-start" onClick=${onChoose}><span class="cp-sketch" aria-hidden="true">${blocks ? sketched.map((type, at) => html`<span key=${at} class=${type}></span>`) : html`<${Icon} name=${icon} size=${28} />`}</span>
    <span class="strong">${title}</span><span class="soft small wrap">${text}</span></button>`;
}
