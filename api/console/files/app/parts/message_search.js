// The search field of the list of messages: free text, and operators that become filters.
import { location, setQuery } from "../core/router.js";
import { Icon } from "../core/ui.js";
import { classes, html, useEffect, useId, useRef, useState } from "../core/view.js";
import { FILTERS, parsed } from "./message_filters.js";

const OFFERED = FILTERS.filter((one) => !one.hidden && one.name !== "search");

/** Return what to offer for the last word of `text`: operators, or the values of an operator. */
export function suggestionsFor(text) {
  const word = /\S*$/.exec(text)[0].toLowerCase();
  const [operator, value] = word.split(":", 2);
  if (value !== undefined) {
    const known = FILTERS.find((one) => one.word === operator);
    return (known?.values ?? []).filter((one) => one.startsWith(value)).map((one) => ({ text: `${operator}:${one}`, hint: "", whole: true }));
  }
  return OFFERED.filter((one) => one.word.startsWith(word)).map((one) => ({ text: `${one.word}:`, hint: one.hint, whole: false }));
}

/** The field. Enter applies operators and text; text alone also applies by itself shortly after the last key. */
export function MessageSearch({ search }) {
  const [text, setText] = useState(search);
  const [open, setOpen] = useState(false);
  const [marked, setMarked] = useState(-1);
  const [problem, setProblem] = useState(null);
  const timer = useRef(0);
  const id = useId();
  useEffect(() => setText(search), [search]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const offers = open ? suggestionsFor(text) : [];
  const apply = (value) => {
    clearTimeout(timer.current);
    const { changes, rest, problem: wrong } = parsed(value);
    setProblem(wrong);
    if (wrong) return;
    const tags = changes.tag && [...new Set([...location.peek().query.getAll("tag"), ...changes.tag])];
    setQuery({ search: rest || null, ...changes, ...(tags && { tag: tags }) });
    setText(changes.search ?? rest);
    setOpen(false);
  };
  const typed = (value) => {
    setText(value);
    setOpen(true);
    setMarked(-1);
    setProblem(null);
    clearTimeout(timer.current);
    if (!value.includes(":")) timer.current = setTimeout(() => setQuery({ search: value.trim() || null }), 300);
  };
  const take = (offer) => {
    const whole = text.replace(/\S*$/, offer.text);
    if (offer.whole) apply(whole);
    else typed(whole);
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && offers.length) {
      event.preventDefault();
      setMarked((marked + step + offers.length + (marked < 0 && step < 0 ? 1 : 0)) % offers.length);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (offers[marked]) take(offers[marked]);
      else apply(text);
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      setOpen(false);
    }
  };
  return html`<div class="search message-search" onFocusOut=${(event) => { if (!event.currentTarget.contains(event.relatedTarget)) setOpen(false); }}>
    <${Icon} name="search" />
    <input class="input" type="search" data-search role="combobox" aria-label="Search messages" aria-autocomplete="list" aria-expanded=${offers.length > 0 ? "true" : "false"} aria-controls=${offers.length ? `${id}-list` : undefined}
      aria-activedescendant=${offers[marked] ? `${id}-${marked}` : undefined} aria-invalid=${problem ? "true" : undefined} aria-describedby=${problem ? `${id}-problem` : undefined} placeholder="Text, or to: status: tag: …" autocomplete="off" spellcheck=${false}
      value=${text} onInput=${(event) => typed(event.currentTarget.value)} onFocus=${() => setOpen(true)} onKeyDown=${keys} />
    ${offers.length > 0 && html`<ul class="offers" role="listbox" id="${id}-list" aria-label="Filters">${offers.map((offer, at) => html`<li key=${offer.text} id="${id}-${at}" role="option" aria-selected=${at === marked ? "true" : "false"} class=${classes("offer", at === marked && "marked")} onMouseDown=${(event) => { event.preventDefault(); take(offer); }}><code>${offer.text}</code><span class="soft small">${offer.hint}</span></li>`)}</ul>`}
    ${problem && html`<div class="bad small" role="alert" id="${id}-problem">${problem}</div>`}
  </div>`;
}
