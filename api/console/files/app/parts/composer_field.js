// Text fields of the composer: a menu of merge fields when {{ is typed, and a toolbar for the inline markup.
import { Button, Dialog, Field, Form, Menu, TextField } from "../core/ui.js";
import { classes, html, useEffect, useId, useLayoutEffect, useRef, useState } from "../core/view.js";
import { fitting, linked, marked, typedField, withField } from "./composer_markup.js";

const MAX_OFFERED = 8;

/**
 * A field whose `attributes` go to its element; it offers `fields` when {{ is typed, and `say` announces them.
 *
 * `element` and `selection` are refs of the caller: the element, and [from, to] to select after the next drawing.
 */
function OfferingField({ value, onValue, fields, say, lines, attributes, element, selection, onKey }) {
  const [typed, setTyped] = useState(null); // what is typed of a merge field; null: no menu
  const [at, setAt] = useState(0);
  const dismissed = useRef(false); // until the next letter
  const id = useId();
  const offered = typed === null ? [] : fitting(fields, typed).slice(0, MAX_OFFERED);
  const look = () => {
    const { value: text, selectionStart, selectionEnd } = element.current;
    const next = selectionStart === selectionEnd && !dismissed.current ? typedField(text, selectionStart) : null;
    if (next !== typed) setAt(0);
    setTyped(next);
  };
  useEffect(() => { if (offered.length) say(`Merge field ${offered[at]}, ${at + 1} of ${offered.length}. Enter inserts it.`); }, [offered.length, at, typed === null]);
  useLayoutEffect(() => {
    if (!selection.current) return;
    element.current.focus();
    element.current.setSelectionRange(...selection.current);
    selection.current = null;
  });
  useLayoutEffect(() => {
    if (!lines) return;
    element.current.style.height = "auto";
    element.current.style.height = `${element.current.scrollHeight}px`;
  }, [value, lines]);
  const take = (name) => {
    const [text, caret] = withField(value, element.current.selectionStart, name);
    selection.current = [caret, caret];
    setTyped(null);
    onValue(text);
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const chooses = event.key === "Enter" || event.key === "Tab";
    if (!offered.length || event.isComposing || !(step || chooses || event.key === "Escape")) return onKey?.(event);
    event.preventDefault();
    event.stopPropagation();
    if (step) setAt((at + step + offered.length) % offered.length);
    else if (chooses) take(offered[at]);
    else {
      dismissed.current = true;
      setTyped(null);
    }
    return undefined;
  };
  const typedIn = (event) => {
    dismissed.current = false;
    onValue(lines === 1 ? event.currentTarget.value.replace(/\n/g, " ") : event.currentTarget.value);
    look();
  };
  const shared = { ...attributes, ref: element, value, onInput: typedIn, onKeyDown: keys, onKeyUp: look, onClick: look, onBlur: () => setTyped(null), autocomplete: "off", "aria-autocomplete": "list", "aria-controls": offered.length ? id : undefined, "aria-activedescendant": offered.length ? `${id}-${at}` : undefined };
  return html`<div class="cp-offering">${lines ? html`<textarea rows="1" ...${shared}></textarea>` : html`<input type="text" ...${shared} />`}
    ${offered.length > 0 && html`<ul class="offers" role="listbox" id=${id} aria-label="Merge fields">${offered.map((name, place) => html`<li key=${name} role="option" id="${id}-${place}" class=${classes("offer", place === at && "marked")} aria-selected=${place === at ? "true" : "false"} onMouseDown=${(event) => { event.preventDefault(); take(name); }}>${name}</li>`)}</ul>`}</div>`;
}

/** A labelled field of one line that offers merge fields, for the panel of settings. */
export function MergeField({ label, hint, error, value, onValue, fields, say, ...rest }) {
  const element = useRef(null);
  const selection = useRef(null);
  return html`<${Field} ...${{ label, hint, error }}>${(attributes) => html`<${OfferingField} ...${{ value: value ?? "", onValue, fields, say, element, selection }} attributes=${{ ...attributes, ...rest }} />`}<//>`;
}

/**
 * A field in the canvas that looks like the text that it edits; it takes the focus when it appears.
 *
 * `lines`: 1 for a single line. `rich` shows the toolbar of the markup. Esc calls `onLeave`.
 */
export function TextInPlace({ label, value, onValue, fields, say, lines = 2, rich = true, look, maxLength, onLeave }) {
  const element = useRef(null);
  const selection = useRef([value.length, value.length]);
  const [link, setLink] = useState(null); // the selection that becomes a link
  const change = (make) => {
    const { selectionStart, selectionEnd } = element.current;
    const [text, from, to] = make(value, selectionStart, selectionEnd);
    selection.current = [from, to];
    onValue(text);
  };
  const mark = (kind) => change((text, from, to) => marked(text, from, to, kind));
  const askLink = () => setLink([element.current.selectionStart, element.current.selectionEnd]);
  const insertField = (name) => change((text, from) => {
    const [next, caret] = withField(text, from, name);
    return [next, caret, caret];
  });
  const keys = (event) => {
    const shortcut = (event.ctrlKey || event.metaKey) && !event.altKey && rich && { b: () => mark("**"), i: () => mark("*") }[event.key.toLowerCase()];
    if (event.key === "Escape" || (event.key === "Enter" && lines === 1)) onLeave();
    else if (shortcut) shortcut();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const still = (event) => event.preventDefault(); // the field keeps the focus and its selection
  return html`<div class="cp-edit">
    <div class="cp-marks" role="toolbar" aria-label="Format" onMouseDown=${still}>
      ${rich && html`<${Button} kind="quiet" icon="bold" label="Bold" onClick=${() => mark("**")} /><${Button} kind="quiet" icon="italic" label="Italic" onClick=${() => mark("*")} /><${Button} kind="quiet" icon="link" label="Link" onClick=${askLink} />`}
      ${fields.length > 0 && html`<${Menu} label="Insert a merge field" icon="braces" start items=${fields.map((name) => ({ text: name, onSelect: () => insertField(name) }))} />`}
    </div>
    <${OfferingField} ...${{ value, onValue, fields, say, lines, element, selection }} attributes=${{ class: "cp-input", style: look, "aria-label": label, maxlength: maxLength }} onKey=${keys} />
    ${link && html`<${LinkDialog} shown=${value.slice(...link)} onClose=${() => setLink(null)} onLink=${(url, shown) => { setLink(null); selection.current = null; change((text) => linked(text, ...link, url, shown)); }} />`}
  </div>`;
}

/** Asks for the address and the text of a link. */
function LinkDialog({ shown, onLink, onClose }) {
  const [url, setUrl] = useState("https://");
  const [text, setText] = useState(shown);
  const good = /^(https?:\/\/.|mailto:.|\{\{)/i.test(url);
  const submit = () => { if (good) onLink(url.trim(), text.trim() || url.trim()); };
  return html`<${Dialog} title="Link" onClose=${onClose} foot=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" why=${good ? null : "Give an address that starts with https://, http:// or mailto:."} onClick=${submit}>Insert link<//>`}>
    <${Form} onSubmit=${submit}>
      <${TextField} label="Address" value=${url} onValue=${setUrl} maxlength="2000" inputmode="url" hint="A web address, a mailto: address, or a merge field." />
      <${TextField} label="Text" value=${text} onValue=${setText} maxlength="300" />
    <//><//>`;
}
