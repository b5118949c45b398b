// The canvas of the composer: the email as it will look, with blocks to select, edit in place, drag and move by keys.
import { Button, Icon, Menu } from "../core/ui.js";
import { classes, html } from "../core/view.js";
import { TextInPlace } from "./composer_field.js";
import { parsed, withSections } from "./composer_markup.js";
import { inWords, KINDS } from "./composer_state.js";

export const LOOK = { accent: "#2450d8", background: "#f4f5f7", surface: "#ffffff", text: "#1c1f24", font: "sans", width: 600 };
const FONTS = { sans: "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif", serif: "Georgia, 'Times New Roman', serif", mono: "Menlo, Consolas, 'Courier New', monospace" };
const HEADINGS = { 1: ["28px", "35px"], 2: ["22px", "27.5px"], 3: ["18px", "22.5px"] };
const LIMITS = { heading: 500, text: 10_000, button: 100, footer: 2000 };

/** Blocks whose text is edited in place. */
export const EDITABLE = new Set(["heading", "text", "button", "list", "footer"]);

/** Return the look of a theme with its defaults. */
export const lookOf = (theme) => ({ ...LOOK, ...theme });

/** Return black or white, whichever is easier to read on `colour` (#rrggbb): relative luminance of WCAG 2. */
export function readableOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return 1.05 / (luminance + 0.05) >= (luminance + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

/** The email of `board` (the state and the actions of the composer). */
export function Canvas({ board }) {
  const { doc, images } = board;
  const look = lookOf(doc.theme);
  const logo = look.logo && images[look.logo];
  const page = { background: look.background, color: look.text, fontFamily: FONTS[look.font] };
  return html`<div class="cp-paper" style=${page} data-paper onClick=${(event) => { if (event.target === event.currentTarget) board.select(null); }}>
    <div class="cp-sheet" style=${{ maxWidth: `${look.width}px`, background: look.surface }}>
      ${look.logo && html`<p class="cp-logo">${logo ? html`<img src=${logo.path} alt="Logo" />` : "Logo"}</p>`}
      <${BlockList} board=${board} blocks=${doc.blocks} parent=${null} column=${0} label="Blocks of the email" />
    </div>
  </div>`;
}

function BlockList({ board, blocks, parent, column, label }) {
  const { drop } = board;
  const isTarget = drop && drop.parent === parent && drop.column === column;
  const rows = blocks.map((block, at) => html`${isTarget && drop.at === at && html`<li key="drop" class="cp-drop" aria-hidden="true"></li>`}<${BlockItem} key=${block.id} board=${board} block=${block} />`);
  const add = (type) => board.add(type, { parent, column, at: 0 });
  return html`<ol class=${classes("cp-list", isTarget && "target")} aria-label=${label} data-list=${parent === null ? "" : `${parent} ${column}`}>
    ${rows}${isTarget && drop.at === blocks.length && html`<li key="drop" class="cp-drop" aria-hidden="true"></li>`}
    ${blocks.length === 0 && html`<li class="cp-empty">${parent === null ? html`<p>The email is empty. Choose a block, or drag one here.</p>` : html`<${Menu} label=${`Add a block to ${label.toLowerCase()}`} text="Add" kind="plain" start items=${kindsFor(parent).map(([type, name, icon]) => ({ text: name, icon, onSelect: () => add(type) }))} />`}</li>`}
  </ol>`;
}

const kindsFor = (parent) => KINDS.filter(([type]) => parent === null || type !== "columns");

function BlockItem({ board, block }) {
  const isChosen = board.selected === block.id;
  const isEdited = isChosen && board.editing && EDITABLE.has(block.type);
  const wrong = board.wrong?.id === block.id ? board.wrong : null;
  const press = (event) => {
    event.stopPropagation();
    if (event.target.closest("button, textarea, input, [role=menu], dialog")) return;
    board.select(block.id, { edit: EDITABLE.has(block.type), focus: true });
  };
  const keys = (event) => { if (event.target === event.currentTarget) board.press(event, block); };
  return html`<li class="cp-item" data-item>
    <div class=${classes("cp-block", isChosen && "chosen", wrong && "wrong", board.dragged === block.id && "dragged")} role="group" aria-label=${`${inWords(block)}${isChosen ? ", selected" : ""}`} data-block=${block.id} tabindex=${board.reached === block.id ? 0 : -1} aria-describedby=${wrong ? `${block.id}-wrong` : undefined} onClick=${press} onKeyDown=${keys}>
      ${isChosen && html`<${Tools} board=${board} block=${block} />`}
      ${isEdited ? html`<${Edited} board=${board} block=${block} />` : html`<${Shown} board=${board} block=${block} />`}
      ${wrong && html`<p class="cp-wrong" id="${block.id}-wrong"><${Icon} name="circle-alert" size=${14} />${wrong.message}</p>`}
    </div>
  </li>`;
}

/** What can be done with the selected block, for hands on a mouse or a screen. */
function Tools({ board, block }) {
  return html`<div class="cp-tools">
    <span class="cp-grip" title="Drag to move" onPointerDown=${(event) => board.drag(event, { id: block.id, type: block.type, name: inWords(block) })}><${Icon} name="grip-vertical" /></span>
    <${Button} kind="quiet" icon="chevron-up" label="Move up" onClick=${() => board.step(block.id, -1)} /><${Button} kind="quiet" icon="chevron-down" label="Move down" onClick=${() => board.step(block.id, 1)} />
    <${Button} kind="quiet" icon="copy" label="Duplicate" onClick=${() => board.duplicate(block.id)} /><${Button} kind="quiet" icon="trash-2" label="Delete" onClick=${() => board.remove(block.id)} />
  </div>`;
}

/** Return the style of a block's text. */
function textStyle(block, theme) {
  const look = lookOf(theme);
  const aligned = { textAlign: block.align ?? "left" };
  if (block.type === "heading") return { ...aligned, fontSize: HEADINGS[block.level ?? 1][0], lineHeight: HEADINGS[block.level ?? 1][1], fontWeight: 700 };
  if (block.type === "button") {
    const ground = block.color ?? look.accent;
    return { background: ground, color: readableOn(ground) };
  }
  return aligned;
}

/** The fields that edit a block in place. */
function Edited({ board, block }) {
  const { doc, fields, say } = board;
  const isList = block.type === "list";
  const value = isList ? block.items.join("\n") : block.text;
  const set = (text) => board.change(block.id, isList ? { items: text.split("\n").slice(0, 50) } : { text }, `text ${block.id}`);
  const label = { heading: "Text of the heading", text: "Text of the paragraph", button: "Text of the button", list: "Points, one per line", footer: "Text of the footer" }[block.type];
  return html`<div class=${classes("cp-shown", `cp-${block.type}`)}><${TextInPlace} key=${block.id} ...${{ label, value, fields, say }} onValue=${set} lines=${block.type === "button" ? 1 : 2} rich=${block.type !== "button"} look=${textStyle(block, doc.theme)} maxLength=${LIMITS[block.type]} onLeave=${() => board.leave(block.id)} /></div>`;
}

/** A block as the email shows it. */
function Shown({ board, block }) {
  const { doc } = board;
  const look = lookOf(doc.theme);
  const style = textStyle(block, doc.theme);
  const inner = {
    heading: () => html`<div style=${style}><${Marked} text=${block.text} accent=${look.accent} /></div>`,
    text: () => html`<div style=${style}><${Marked} text=${block.text} accent=${look.accent} /></div>`,
    footer: () => html`<div style=${style}><${Marked} text=${block.text} accent=${look.accent} /></div>`,
    button: () => html`<div style=${{ textAlign: block.align ?? "left" }}><span class="cp-press" style=${style}>${block.text || "Button"}</span></div>`,
    image: () => html`<${Picture} block=${block} image=${board.images[block.image]} />`,
    columns: () => html`<div class="cp-row">${block.columns.map((one, at) => html`<div key=${at} style=${{ flex: one.weight ?? 1 }}><${BlockList} board=${board} blocks=${one.blocks} parent=${block.id} column=${at} label=${`Column ${at + 1}`} /></div>`)}</div>`,
    divider: () => html`<div class="cp-line"></div>`,
    spacer: () => html`<div class="cp-space" style=${{ height: `${block.height ?? 24}px` }}></div>`,
    list: () => html`<div class=${classes("cp-points", block.style === "number" && "number")}>${block.items.map((item, at) => html`<div key=${at}><${Marked} text=${item} accent=${look.accent} /></div>`)}</div>`,
  }[block.type];
  return html`<div class=${classes("cp-shown", `cp-${block.type}`)}>${inner?.()}</div>`;
}

function Picture({ block, image }) {
  const width = block.width ?? image?.width;
  const style = { width: width ? `${width}px` : undefined };
  return html`<div style=${{ textAlign: block.align ?? "left" }}>${image ? html`<img src=${image.path} alt=${block.alt ?? ""} style=${style} draggable=${false} />` : html`<span class="cp-missing"><${Icon} name="image" />${block.alt || "Image"}</span>`}</div>`;
}

/** Text with its inline markup, as nodes: nothing of it is read as HTML. */
function Marked({ text, accent }) {
  const drawn = (piece, at) => {
    if (piece.kind === "text") return piece.text;
    if (piece.kind === "field") return html`<span key=${at} class="cp-field">${piece.text}</span>`;
    if (piece.kind === "section") return html`<span key=${at} class="cp-section" title=${piece.text}>${piece.label}</span>`;
    const inner = withSections(piece.pieces).map(drawn);
    if (piece.kind === "bold") return html`<strong key=${at}>${inner}</strong>`;
    if (piece.kind === "italic") return html`<em key=${at}>${inner}</em>`;
    return html`<span key=${at} class="cp-link" style=${{ color: accent }} title=${piece.url}>${inner}</span>`;
  };
  return html`${withSections(parsed(text)).map(drawn)}`;
}
