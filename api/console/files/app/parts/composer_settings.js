// The settings of the composer: those of the selected block, and the design of the whole email.
import { Button, Field, Segments, SelectField, TextField } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { LOOK } from "./composer_canvas.js";
import { MergeField } from "./composer_field.js";
import { AccountLogo } from "./composer_images.js";
import { blockOf, KINDS, themed, withColumns } from "./composer_state.js";

const ALIGNS = [["left", "Left"], ["center", "Center"], ["right", "Right"]];
const LEVELS = [["1", "Large"], ["2", "Medium"], ["3", "Small"]];
const FONT_NAMES = [["sans", "Sans serif"], ["serif", "Serif"], ["mono", "Monospace"]];
const WEIGHTS = [["1", "1"], ["2", "2"], ["3", "3"]];
const COLOURS = [["accent", "Buttons and links"], ["text", "Text"], ["surface", "Email"], ["background", "Around the email"]];

/** The panel beside the canvas. */
export function Settings({ board }) {
  const block = board.selected === null ? null : blockOf(board.doc, board.selected);
  const [shown, setShown] = useState("block");
  const name = block && KINDS.find(([type]) => type === block.type)[1];
  const isDesign = !block || shown === "design";
  return html`<section class="cp-settings" aria-label="Settings" data-settings>
    ${block ? html`<div class="row"><${Segments} label="Settings of" options=${[["block", name], ["design", "Design"]]} value=${isDesign ? "design" : "block"} onValue=${setShown} /></div>` : html`<h2>Design of the email</h2>`}
    ${isDesign ? html`<${Design} board=${board} />` : html`<${BlockSettings} key=${block.id} board=${board} block=${block} />`}
  </section>`;
}

function BlockSettings({ board, block }) {
  const set = (changes, key) => board.change(block.id, changes, `${key} ${block.id}`);
  const own = { heading: HeadingSettings, button: ButtonSettings, image: ImageSettings, columns: ColumnSettings, spacer: SpaceSettings, list: ListSettings }[block.type];
  const wrong = (field) => (board.wrong?.id === block.id && board.wrong.field === field ? board.wrong.message : null);
  const aligned = ["heading", "text", "button", "image", "footer"].includes(block.type);
  return html`${own && html`<${own} ...${{ board, block, set, wrong }} />`}
    ${aligned && html`<div class="field"><span class="label">Alignment</span><div><${Segments} label="Alignment" options=${ALIGNS} value=${block.align ?? "left"} onValue=${(align) => set({ align: align === "left" ? null : align }, "align")} /></div></div>`}
    ${block.type === "footer" && html`<p class="soft small">Type {{ to insert the unsubscribe link of a broadcast or your own fields.</p>`}
    ${block.type === "divider" && html`<p class="soft">A divider has no settings.</p>`}`;
}

function HeadingSettings({ block, set }) {
  return html`<div class="field"><span class="label">Size</span><div><${Segments} label="Size" options=${LEVELS} value=${String(block.level ?? 1)} onValue=${(level) => set({ level: Number(level) }, "level")} /></div></div>`;
}

function ButtonSettings({ board, block, set, wrong }) {
  const { fields, say } = board;
  return html`<${MergeField} label="Address" value=${block.url} onValue=${(url) => set({ url }, "url")} fields=${fields} say=${say} maxlength="2000" inputmode="url" error=${wrong("url")} hint="Where the button leads: https://… or a merge field." />
    <${ColourField} label="Color" value=${block.color} fallback=${board.doc.theme?.accent ?? LOOK.accent} onValue=${(color) => set({ color }, "color")} />`;
}

function ImageSettings({ board, block, set, wrong }) {
  const { fields, say, images } = board;
  const known = images[block.image];
  return html`<${TextField} label="Description" rows=${3} value=${block.alt} onValue=${(alt) => set({ alt }, "alt")} maxlength="300" error=${wrong("alt")} hint="What the image shows, for people who don't see it." />
    <${NumberField} label="Width" min=${16} max=${720} value=${block.width ?? known?.width} onValue=${(width) => set({ width }, "width")} error=${wrong("width")} />
    <${MergeField} label="Link" value=${block.url} onValue=${(url) => set({ url: url || null }, "url")} fields=${fields} say=${say} maxlength="2000" inputmode="url" error=${wrong("url")} hint="Leave blank for an image without a link." />
    <div><${Button} icon="image" onClick=${() => board.replaceImage(block)}>Replace image<//></div>`;
}

function ColumnSettings({ board, block, set }) {
  const count = (wanted) => board.apply(withColumns(board.doc, block.id, Number(wanted)), { say: `${wanted} columns` });
  const weigh = (at, weight) => set({ columns: block.columns.map((one, place) => (place === at ? { ...one, weight: Number(weight) } : one)) }, `weight ${at}`);
  return html`<div class="field"><span class="label">Columns</span><div><${Segments} label="Columns" options=${[["2", "2"], ["3", "3"]]} value=${String(block.columns.length)} onValue=${count} /></div></div>
    ${block.columns.map((one, at) => html`<${SelectField} key=${at} label=${`Share of column ${at + 1}`} value=${String(one.weight ?? 1)} options=${WEIGHTS} onValue=${(weight) => weigh(at, weight)} />`)}
    <p class="soft small">On phones the columns are below each other.</p>`;
}

function SpaceSettings({ block, set, wrong }) {
  return html`<${NumberField} label="Height" min=${4} max=${120} value=${block.height ?? 24} onValue=${(height) => set({ height }, "height")} error=${wrong("height")} />`;
}

function ListSettings({ block, set }) {
  return html`<div class="field"><span class="label">Style</span><div><${Segments} label="Style" options=${[["bullet", "Points"], ["number", "Numbers"]]} value=${block.style ?? "bullet"} onValue=${(style) => set({ style }, "style")} /></div></div>`;
}

/** A field for pixels; what is out of bounds is not taken over. */
function NumberField({ label, min, max, value, onValue, error }) {
  const [typed, setTyped] = useState(null); // the text while it is no number within the bounds
  const type = (text) => {
    const number = Number(text);
    const good = Number.isInteger(number) && number >= min && number <= max;
    setTyped(good ? null : text);
    if (good) onValue(number);
  };
  return html`<${TextField} label=${`${label} in pixels`} type="number" min=${min} max=${max} value=${typed ?? value ?? ""} onValue=${type} error=${typed === null ? error : `From ${min} to ${max}.`} />`;
}

/** A colour with a button that goes back to `fallback`. */
function ColourField({ label, value, fallback, onValue }) {
  return html`<${Field} label=${label}>${(attributes) => html`<div class="row"><input type="color" ...${attributes} class="cp-colour" value=${value ?? fallback} onInput=${(event) => onValue(event.currentTarget.value)} /><code>${value ?? fallback}</code>${value && html`<${Button} kind="quiet" icon="rotate-ccw" label=${`Reset: ${label}`} onClick=${() => onValue(null)} />`}</div>`}<//>`;
}

/** The design of the whole email. */
function Design({ board }) {
  const { doc } = board;
  const theme = doc.theme ?? {};
  const set = (changes, key) => board.apply(themed(doc, changes), { key: `theme ${key}` });
  const setDoc = (changes, key) => board.apply({ ...doc, ...changes }, { key });
  return html`<${TextField} label="Preview text" rows=${2} maxlength="200" value=${doc.preheader ?? ""} onValue=${(preheader) => setDoc({ preheader }, "preheader")} hint="Shown after the subject in the inbox." />
    ${COLOURS.map(([name, label]) => html`<${ColourField} key=${name} label=${label} value=${theme[name]} fallback=${LOOK[name]} onValue=${(value) => set({ [name]: value }, name)} />`)}
    <${SelectField} label="Typeface" value=${theme.font ?? "sans"} options=${FONT_NAMES} onValue=${(font) => set({ font }, "font")} />
    <${NumberField} label="Width" min=${480} max=${720} value=${theme.width ?? LOOK.width} onValue=${(width) => set({ width }, "width")} />
    <div class="field"><span class="label">Logo</span><div class="row"><${Button} icon="image" onClick=${board.chooseLogo}>${theme.logo ? "Replace logo" : "Choose logo"}<//>${theme.logo ? html`<${Button} onClick=${() => set({ logo: null }, "logo")}>Remove logo<//>` : html`<${AccountLogo} onLogo=${board.setLogo} />`}</div></div>
    <${SelectField} label="Images" value=${doc.images ?? "hosted"} options=${[["hosted", "Linked: smaller emails"], ["inline", "Attached: shown offline"]]} onValue=${(images) => setDoc({ images }, "images")} />`;
}
