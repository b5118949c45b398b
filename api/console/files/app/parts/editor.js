// A text editor with coloured syntax: a textarea with transparent text over a copy of the lines in view, which the CSS
// Custom Highlight API colours; where that is missing, they are plain. A key costs the same in a long text.
import { classes, html, useEffect, useId, useLayoutEffect, useRef } from "../core/view.js";

const MAX_COLOURED = 50_000; // characters in view; longer lines stay plain, so that each key is answered at once
const LOOK_BACK = 60; // lines above those in view that are read for the begin of a comment or a string
const LINE_PX = 20; // as in console.css
const PAD_PX = 10;
const RULES = {
  html: [
    ["comment", /<!--[\s\S]*?-->|\{\{!\s[\s\S]*?\}\}/g],
    ["variable", /\{\{\{?[#^/]?\s*[\w.-]+\s*\}?\}\}/g],
    ["tag", /<\/?[a-zA-Z][\w:-]*|\/?>/g],
    ["attribute", /(?<=\s)[a-zA-Z][\w:-]*(?==)/g],
    ["string", /(?<==)"[^"]*"|(?<==)'[^']*'/g],
  ],
  text: [
    ["comment", /\{\{!\s[\s\S]*?\}\}/g],
    ["variable", /\{\{\{?[#^/]?\s*[\w.-]+\s*\}?\}\}/g],
  ],
};
const parts = new Map(); // name of a highlight: Map of an editor's element to its ranges

/** Show the ranges of all editors on the page; highlights are named for the whole document. */
function show(name) {
  const ranges = [...(parts.get(name)?.values() ?? [])].flat();
  if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
  else CSS.highlights.delete(name);
}

/** Return the offset at which line `line` (from 0) begins, searched from the begin of line `known`. */
function offsetOf(text, line, known = 0, from = 0) {
  let at = from;
  for (let count = known; count < line; count += 1) {
    const next = text.indexOf("\n", at);
    if (next === -1) return text.length;
    at = next + 1;
  }
  return at;
}

/** Show the lines of `field` that are in view, with their numbers, in the elements behind it. */
function draw(field, behind, numbers, language) {
  const { value, scrollTop, scrollLeft, clientHeight } = field;
  const seen = Math.floor(scrollTop / LINE_PX);
  const first = Math.max(0, seen - LOOK_BACK);
  const last = seen + Math.ceil(clientHeight / LINE_PX) + 1;
  const from = offsetOf(value, first);
  const text = value.slice(from, offsetOf(value, last, first, from));
  behind.textContent = `${text}\n`;
  behind.style.transform = `translate(${-scrollLeft}px, ${first * LINE_PX - scrollTop}px)`;
  const shown = text.split("\n").length - (text.endsWith("\n") && from + text.length < value.length ? 1 : 0);
  numbers.firstChild.textContent = Array.from({ length: shown }, (_, at) => first + at + 1).join("\n");
  numbers.firstChild.style.top = `${first * LINE_PX}px`;
  numbers.style.transform = `translateY(${-scrollTop}px)`;
  colour(behind, text, language);
}

function colour(element, text, language) {
  if (!globalThis.CSS?.highlights) return;
  const node = element.firstChild;
  for (const [name, pattern] of RULES[language] ?? []) {
    const ranges = [];
    if (node && text.length <= MAX_COLOURED) {
      for (const found of text.matchAll(pattern)) {
        const range = new Range();
        range.setStart(node, found.index);
        range.setEnd(node, Math.min(found.index + found[0].length, node.length));
        ranges.push(range);
      }
    }
    if (!parts.has(name)) parts.set(name, new Map());
    parts.get(name).set(element, ranges);
    show(name);
  }
}

function forget(element) {
  for (const [name, editors] of parts) {
    if (editors.delete(element)) show(name);
  }
}

const INDENT = "  ";

/** Return [from, to, replacement, selection start, selection end] that indents the selected lines, or null. */
export function indentation(text, from, to, back) {
  const start = text.lastIndexOf("\n", from - 1) + 1;
  if (!back && !text.slice(from, to).includes("\n")) return [from, to, INDENT, from + INDENT.length, from + INDENT.length];
  const lines = text.slice(start, to).split("\n");
  const changed = lines.map((line) => (back ? line.replace(/^ {1,2}|^\t/, "") : line && INDENT + line));
  const replacement = changed.join("\n");
  if (replacement === text.slice(start, to)) return null;
  const first = changed[0].length - lines[0].length;
  return [start, to, replacement, Math.max(start, from + first), start + replacement.length];
}

/** Replace a part of a field's text as typing does, so that undo takes it back. */
function type(field, [from, to, text, selectFrom, selectTo]) {
  field.setSelectionRange(from, to);
  const typed = text === "" ? document.execCommand("delete") : document.execCommand("insertText", false, text);
  if (!typed) field.setRangeText(text, from, to, "end");
  field.setSelectionRange(selectFrom, selectTo);
}

/** Tab and Shift+Tab indent, Enter keeps the indentation; after Esc, Tab leaves the field. */
function useKeys(onValue) {
  const leaving = useRef(false);
  return (event) => {
    const field = event.currentTarget;
    const { value, selectionStart: from, selectionEnd: to } = field;
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey && !event.isComposing;
    let change = null;
    if (plain && event.key === "Tab" && !leaving.current) change = indentation(value, from, to, event.shiftKey);
    if (plain && event.key === "Enter" && !event.shiftKey) {
      const indent = /^[ \t]*/.exec(value.slice(value.lastIndexOf("\n", from - 1) + 1, from))[0];
      const end = from + indent.length + 1;
      if (indent) change = [from, to, `\n${indent}`, end, end];
    }
    if (event.key === "Escape") leaving.current = true;
    else if (event.key !== "Shift") leaving.current = false;
    if (!change) return;
    event.preventDefault();
    type(field, change);
    onValue(field.value);
  };
}

/**
 * An editor: `language` is html or text. Tab indents by two spaces; Esc and then Tab leaves the editor.
 * `error` is shown below and marks the field; `line` is the line that it is about.
 */
export function Editor({ label, value, onValue, language = "html", rows = 18, error = null, line = null, hint = null }) {
  const id = useId();
  const behind = useRef(null);
  const field = useRef(null);
  const numbers = useRef(null);
  const redraw = () => { if (field.current) draw(field.current, behind.current, numbers.current, language); };
  useLayoutEffect(redraw, [value, language]);
  useEffect(() => {
    const element = behind.current;
    const resized = new ResizeObserver(redraw);
    resized.observe(field.current);
    return () => {
      resized.disconnect();
      forget(element);
    };
  }, [language]);
  useEffect(() => { if (line && document.activeElement !== field.current) field.current.scrollTop = Math.max(0, (line - 3) * LINE_PX); }, [line, error]);
  const keys = useKeys(onValue);
  return html`<div class="field"><label for=${id}>${label}</label>
    <div class=${classes("editor", error && "wrong")} style=${{ height: `${rows * LINE_PX + LINE_PX}px` }}>
      <div class="editor-lines" aria-hidden="true"><div ref=${numbers}><pre></pre>${line && html`<span class="editor-mark" style=${{ top: `${PAD_PX + (line - 1) * LINE_PX}px` }}>${line}</span>`}</div></div>
      <div class="editor-text"><div class="editor-behind" aria-hidden="true"><pre ref=${behind}></pre></div>
      <textarea id=${id} ref=${field} spellcheck=${false} autocapitalize="off" autocomplete="off" wrap="off" aria-describedby=${`${id}-hint${error ? ` ${id}-error` : ""}`} aria-invalid=${error ? "true" : undefined} value=${value} onInput=${(event) => onValue(event.currentTarget.value)} onScroll=${redraw} onKeyDown=${keys}></textarea></div>
    </div>
    <span class="hint" id="${id}-hint">${hint ?? ""} Tab indents. Press Esc, then Tab to leave the editor.</span>
    ${error && html`<span class="error" id="${id}-error">${error}</span>`}
  </div>`;
}
