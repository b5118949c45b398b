// The components that all pages use: buttons, fields, notices, chips, times, dialogs, menus, toasts.
// The page /console/components shows each of them.
import { Button, Icon } from "./controls.js";
import { href } from "./router.js";
import { ago, classes, dateMinute, dateTime, html, signal, useEffect, useId, useLayoutEffect, useRef, useState, utc } from "./view.js";

export { Button, Filters, HeadActions, Icon, Menu, PageHead } from "./controls.js";

/** The name of the service with its mark, as a link to the first page. */
export function Brand() {
  return html`<a class="brand" href=${href("/")}><img class="brand-mark" src=${new URL("../icon.svg", import.meta.url).pathname} alt="" />Waybill</a>`;
}

/** A bordered section with a heading, optional actions and a foot. `flush` leaves out the padding, for tables. */
export function Card({ title, actions, foot, flush, children }) {
  const id = useId();
  return html`<section class="card" aria-labelledby=${title ? id : undefined}>
    ${title && html`<div class="card-head"><h2 id=${id}>${title}</h2>${actions && html`<div class="row">${actions}</div>`}</div>`}
    ${flush ? children : html`<div class="card-body">${children}</div>`}
    ${foot && html`<div class="card-foot">${foot}</div>`}
  </section>`;
}

/** A labelled field around one control. `children` gets {id, "aria-describedby", "aria-invalid", class} to spread. */
export function Field({ label, hint, error, hideLabel, children }) {
  const id = useId();
  const described = classes(hint && `${id}-hint`, error && `${id}-error`) || undefined;
  const attributes = { id, class: "input", "aria-describedby": described, "aria-invalid": error ? "true" : undefined };
  return html`<div class="field">
    <label for=${id} class=${hideLabel ? "visually-hidden" : undefined}>${label}</label>
    ${children(attributes)}
    ${hint && html`<span class="hint" id="${id}-hint">${hint}</span>`}
    ${error && html`<span class="error" id="${id}-error"><${Icon} name="circle-alert" size=${14} />${error}</span>`}
  </div>`;
}

/** A text field. `value` and `onValue` control it; further attributes go to the input element. */
export function TextField({ label, hint, error, hideLabel, value, onValue, rows, mono, ...rest }) {
  return html`<${Field} ...${{ label, hint, error, hideLabel }}>${(attributes) => {
    const shared = { ...attributes, class: classes("input", mono && "mono"), value: value ?? "", onInput: (event) => onValue(event.currentTarget.value), ...rest };
    return rows ? html`<textarea rows=${rows} ...${shared}></textarea>` : html`<input ...${{ type: "text", ...shared }} />`;
  }}<//>`;
}

/** A selection of one of `options`: [[value, text], …]. */
export function SelectField({ label, hint, error, hideLabel, value, onValue, options, ...rest }) {
  return html`<${Field} ...${{ label, hint, error, hideLabel }}>${(attributes) => html`<select ...${attributes} ...${rest} onChange=${(event) => onValue(event.currentTarget.value)}>
    ${options.map(([one, text]) => html`<option value=${one} selected=${String(one) === String(value ?? "")}>${text}</option>`)}
  </select>`}<//>`;
}

/** A checkbox with its text and an optional hint below. */
export function CheckField({ label, hint, checked, onChecked, ...rest }) {
  return html`<label class="check"><input type="checkbox" checked=${checked} onChange=${(event) => onChecked(event.currentTarget.checked)} ...${rest} /><span>${label}${hint && html`<span class="hint">${hint}</span>`}</span></label>`;
}

/** A search field that reports its text 250 ms after the last key, and at once on Enter. */
export function SearchField({ label = "Search", value, onValue, ...rest }) {
  const [text, setText] = useState(value ?? "");
  const timer = useRef(0);
  useEffect(() => setText(value ?? ""), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = (next) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onValue(next), 250);
  };
  const key = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    clearTimeout(timer.current);
    onValue(text);
  };
  return html`<div class="search"><${Icon} name="search" /><input class="input" type="search" data-search aria-label=${label} placeholder=${label} value=${text} onInput=${(event) => typed(event.currentTarget.value)} onKeyDown=${key} ...${rest} /></div>`;
}

/** A form: `onSubmit` runs without loading a document, after the browser's own checks of the fields. */
export function Form({ onSubmit, children, ...rest }) {
  const submit = (event) => {
    event.preventDefault();
    if (event.currentTarget.reportValidity()) onSubmit();
  };
  return html`<form class="form" novalidate onSubmit=${submit} ...${rest}>${children}</form>`;
}

/** Return the message of `error` if it is about `field`, else null. */
export const fieldError = (error, field) => (error && error.details?.field === field ? error.message : null);

/** A notice: tone info | good | warn | bad. */
export function Notice({ tone = "info", title, children, action }) {
  const icon = { info: "info", good: "circle-check", warn: "triangle-alert", bad: "circle-alert" }[tone];
  return html`<div class=${classes("notice", tone)} role=${tone === "bad" ? "alert" : undefined}><${Icon} name=${icon} />
    <div class="notice-text">${title && html`<strong>${title} </strong>`}${children}</div>${action}</div>`;
}

const LIMITS = { __proto__: null, plan_limit_reached: "Limit of the plan", daily_limit_reached: "Daily limit", rate_limited: "Too many requests", too_many_streams: "Too many live connections" };

/** A refusal of the API: its message, the request id, a button to try again. Errors shown at a `fields` field are left out. */
export function ErrorNote({ error, retry, fields = [] }) {
  if (!error || (error.details?.field && fields.includes(error.details.field))) return null;
  return html`<${Notice} tone="bad" title=${LIMITS[error.type] ? `${LIMITS[error.type]}:` : undefined} action=${retry && html`<${Button} icon="refresh-cw" onClick=${retry}>Try again<//>`}>
    ${error.message}${error.retryAfterS ? html` <span class="soft">Retry in ${error.retryAfterS} s.</span>` : ""}
    ${error.requestId && html`<div class="soft small">Request <code>${error.requestId}</code></div>`}
  <//>`;
}

/** What stands in place of a list without rows: a sentence, a button, a call to copy. */
export function Empty({ icon = "inbox", title, children, action, curl }) {
  return html`<div class="empty"><${Icon} name=${icon} size=${28} /><h2>${title}</h2><p>${children}</p>${action}${curl && html`<${Code} text=${inLines(curl)} label="The same with curl" />`}</div>`;
}

/** Return a curl command with each header and the body on a line of its own. */
const inLines = (curl) => curl.replace(/\s*\\\n\s*/g, " ").replace(`"Content-Type: application/json"`, "'Content-Type: application/json'").replace(/ (-H|-d) (?=["'])/g, " \\\n  $1 ");

/** True once `ms` have passed while `on` holds: skeletons appear late, so that fast answers don't flicker. */
export function useLate(on, ms = 150) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (!on) {
      setLate(false);
      return undefined;
    }
    const timer = setTimeout(() => setLate(true), ms);
    return () => clearTimeout(timer);
  }, [on]);
  return on && late;
}

/** Grey lines in place of content that loads. */
export function Skeleton({ lines = 4 }) {
  const shown = useLate(true);
  if (!shown) return html`<div aria-hidden="true"></div>`;
  return html`<div class="stack-tight" role="status" aria-label="Loading">${Array.from({ length: lines }, (_, at) => html`<span class="skeleton" style=${{ width: `${90 - ((at * 17) % 45)}%` }}></span>`)}</div>`;
}

const TONES = {
  good: ["delivered", "verified", "active", "approved", "sent", "ok", "paid", "pass", "enabled", "deliverable", "clean", "ready", "succeeded", "enforce", "healthy"],
  bad: ["bounced", "failed", "complained", "rejected", "stopped", "firing", "failing", "suspended", "infected", "undeliverable", "fail", "mismatch", "expired", "exhausted", "disabled", "permerror", "past_due", "revoked", "untrusted"],
  warn: ["deferred", "pending", "paused", "in_review", "partially_delivered", "missing", "unverified", "risky", "softfail", "temperror", "closing", "cooldown", "unscanned", "stale", "testing", "partial"],
  accent: ["queued", "accepted", "sending", "scheduled", "attempted", "processing", "invited"],
};
const TONE_OF = { __proto__: null, ...Object.fromEntries(Object.entries(TONES).flatMap(([tone, words]) => words.map((word) => [word, tone]))) };

/** A small label. Without `tone`, the colour follows from a known status word. */
export function Chip({ tone, children, onRemove, removeLabel }) {
  const chosen = tone ?? TONE_OF[String(children)] ?? "";
  const text = typeof children === "string" ? children.replaceAll("_", " ") : children;
  return html`<span class=${classes("chip", chosen)}>${text}${onRemove && html`<button type="button" aria-label=${removeLabel} onClick=${onRemove}><${Icon} name="x" size=${12} /></button>`}</span>`;
}

const clockTick = signal(0);
setInterval(() => { if (document.visibilityState === "visible") clockTick.value += 1; }, 15_000);

/** A time in the person's zone, UTC on hover. `relative`: "4 min ago"; `minute`: without seconds. */
export function Time({ at, relative, minute }) {
  if (!at) return html`<span class="soft">–</span>`;
  if (relative) clockTick.value;
  return html`<time class="numeric" datetime=${at} title=${`${dateTime(at)} · ${utc(at)}`}>${relative ? ago(at) : minute ? dateMinute(at) : dateTime(at)}</time>`;
}

/** An address that breaks before its @ where the line is too short. */
export function breakable(address) {
  const at = address.lastIndexOf("@");
  return at < 1 ? address : html`${address.slice(0, at)}<wbr />${address.slice(at)}`;
}

/** Copy `text`; return whether the browser did: people and administrators can forbid it. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    return false;
  }
  return true;
}

/** The message to show when the browser refuses to copy. */
export const COPY_REFUSED = "The browser refused to copy";

/** A button that copies `text`. */
export function CopyButton({ text, label = "Copy" }) {
  const [copied, setCopied] = useState(null); // null: not asked lately
  const copy = async () => {
    const allowed = await copyText(text);
    setCopied(allowed);
    setTimeout(() => setCopied(null), allowed ? 1500 : 6000);
  };
  const said = copied === null ? "" : copied ? "Copied" : COPY_REFUSED;
  return html`<span class="copy"><${Button} kind="quiet" icon=${copied ? "check" : "copy"} label=${label} onClick=${copy} /><span class=${copied === false ? "refused bad small" : "visually-hidden"} role="status">${said}</span></span>`;
}

/** One line of text to copy, such as an id. */
export function CopyLine({ text, label }) {
  return html`<span class="copy-line"><code title=${text}>${text}</code><${CopyButton} text=${text} label=${label ?? `Copy ${text}`} /></span>`;
}

/** Keep the backslash at the end of a line of a shell command with the word before it. */
const withBackslashes = (text) => (text ?? "").split(/( \\)(?=\n)/).map((part) => (part === " \\" ? html`<span class="backslash">${part}</span>` : part));

/** A block of code with a button that copies it, or `copied` if it is shown in another form. */
export function Code({ text, label = "Code", copied = text }) {
  return html`<figure class="code" aria-label=${label}><pre tabindex="0"><code>${withBackslashes(text)}</code></pre><${CopyButton} text=${copied} label=${`Copy: ${label}`} /></figure>`;
}

/** Names and values below each other: items are [name, value]; those with a value null or undefined are left out. */
export function Facts({ items }) {
  return html`<dl class="facts">${items.filter((item) => item && item[1] != null).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** Figures side by side: items are [label, value, note]. */
export function Figures({ items }) {
  return html`<div class="figures">${items.map(([label, value, note]) => html`<div class="figure"><div class="label">${label}</div><div class="value">${value}</div>${note && html`<div class="soft small">${note}</div>`}</div>`)}</div>`;
}

/** A bar of how much of `max` is used; amber from 80%, red from 100%. The one of a limit of one is no alarm. */
export function Meter({ label, value, max }) {
  const share = max ? Math.min(1, value / max) : 0;
  return html`<div class=${classes("meter", max > 1 && (share >= 1 ? "bad" : share >= 0.8 && "warn"))} role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax=${max} aria-valuenow=${value}><span style=${{ width: `${share * 100}%` }}></span></div>`;
}

/** Tabs of a page: items are [key, text]. The panel is the caller's, below. */
export function Tabs({ label, items, current, onSelect }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = items.findIndex(([key]) => key === current);
    const [key] = items[(at + step + items.length) % items.length];
    onSelect(key);
    event.currentTarget.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
  };
  const bar = useRef(null);
  useLayoutEffect(() => showChosen(bar.current), [current]);
  return html`<div class="tabs" role="tablist" ref=${bar} aria-label=${label} onKeyDown=${move}>${items.map(([key, text]) => html`<button type="button" role="tab" data-key=${key} aria-selected=${key === current ? "true" : "false"} tabindex=${key === current ? 0 : -1} onClick=${() => onSelect(key)}>${text}</button>`)}</div>`;
}

/** Scroll a bar of tabs sideways until the chosen one is seen. */
export function showChosen(bar) {
  const chosen = bar.querySelector("[aria-selected=true], [aria-current=page]");
  if (chosen) bar.scrollLeft = chosen.offsetLeft - (bar.clientWidth - chosen.offsetWidth) / 2;
}

/** A choice between few values side by side: options are [value, text]. */
export function Segments({ label, options, value, onValue }) {
  return html`<div class="segments" role="group" aria-label=${label}>${options.map(([one, text]) => html`<button type="button" aria-pressed=${one === value ? "true" : "false"} onClick=${() => onValue(one)}>${text}</button>`)}</div>`;
}

const NOT_TYPED = new Set(["checkbox", "radio", "file", "button", "submit", "reset", "color", "range", "search"]);

/** True if the key sends what is filled in: Enter in a field of one line, Ctrl+Enter or ⌘+Enter anywhere. */
function sends(event) {
  if (event.key !== "Enter" || event.isComposing || event.defaultPrevented) return false;
  const field = event.target;
  return event.ctrlKey || event.metaKey || (field instanceof HTMLInputElement && !NOT_TYPED.has(field.type));
}

const FIRST_FIELD = ".dialog-body :is(input:not([type=checkbox], [type=radio], [type=file]), select, textarea)";

/** Show a <dialog> over the page while it is rendered. The page keeps its width; the focus returns to the opener. */
export function useModal(element) {
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = element.current;
    const root = document.documentElement;
    if (!document.querySelector("dialog[open]")) root.style.setProperty("--gutter", `${window.innerWidth - root.getBoundingClientRect().width}px`);
    dialog.showModal();
    if (!dialog.querySelector("[autofocus]")) dialog.querySelector(FIRST_FIELD)?.focus();
    return () => {
      dialog.close(); // while it is open, what lies below can't take the focus
      if (before?.isConnected) before.focus();
    };
  }, []);
}

/**
 * A modal dialog, open while it is rendered. Esc and a press beside it call `onClose`. A key that sends presses the
 * primary button of `foot`, which is outside the forms: browsers look for a submit button within.
 */
export function Dialog({ title, onClose, children, foot, wide, kind }) {
  const element = useRef(null);
  const id = useId();
  useModal(element);
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  const beside = (event) => { if (event.target === element.current) onClose(); };
  const keys = (event) => {
    const button = element.current.querySelector(".dialog-foot .button.primary");
    if (!button || event.target.closest("dialog") !== element.current || !sends(event)) return;
    event.preventDefault();
    if ([...element.current.querySelectorAll("form")].every((form) => form.reportValidity())) button.click();
  };
  return html`<dialog ref=${element} class=${classes(wide && "wide", kind)} aria-labelledby=${id} onCancel=${cancel} onMouseDown=${beside} onKeyDown=${keys}>
    <div class="dialog-head"><h2 id=${id}>${title}</h2><${Button} kind="quiet" icon="x" label="Close" onClick=${onClose} /></div>
    <div class="dialog-body">${children}</div>
    ${foot && html`<div class="dialog-foot">${foot}</div>`}
  </dialog>`;
}

/**
 * A question before a change that can't be undone. It names the thing; `typed` must be typed to enable the button.
 * `action` is an async function; on success the dialog calls `onClose(true)`.
 */
export function Confirm({ title, children, confirm, typed, danger = true, action, onClose }) {
  const [text, setText] = useState("");
  const [state, setState] = useState({ busy: false, error: null });
  const run = async () => {
    setState({ busy: true, error: null });
    try {
      await action();
      onClose(true);
    } catch (error) {
      if (!error.type) throw error;
      setState({ busy: false, error });
    }
  };
  const foot = html`<${Button} onClick=${() => onClose(false)}>Cancel<//><${Button} kind="primary" danger=${danger} busy=${state.busy} disabled=${typed !== undefined && text !== typed} onClick=${run}>${confirm}<//>`;
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)} foot=${foot}>
    <div class="prose">${children}</div>
    ${typed !== undefined && html`<${TextField} label=${`Type ${typed} to confirm`} value=${text} onValue=${setText} autocomplete="off" spellcheck=${false} />`}
    <${ErrorNote} error=${state.error} />
  <//>`;
}

/** A dialog that shows a secret once: it is kept nowhere and gone when the dialog closes. */
export function SecretDialog({ title, secret, children, onClose }) {
  return html`<${Dialog} title=${title} onClose=${onClose} foot=${html`<${Button} kind="primary" onClick=${onClose}>I have stored it<//>`}>
    <${Notice} tone="warn">Copy it now. You won't see it again.<//>
    <${Code} text=${secret} label="Secret" />${children}
  <//>`;
}

const toasts = signal([]);
let toastNumber = 0;

/** Show a short message for some seconds: tone good | bad | info. */
export function toast(text, { tone = "good", ms = 5000 } = {}) {
  const id = (toastNumber += 1);
  toasts.value = [...toasts.peek(), { id, text, tone }];
  setTimeout(() => { toasts.value = toasts.peek().filter((one) => one.id !== id); }, ms);
}

/** The place of the toasts; once in the shell. */
export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">${toasts.value.map((one) => html`<div class="toast" key=${one.id}><span class=${one.tone === "info" ? "soft" : one.tone}><${Icon} name=${one.tone === "bad" ? "circle-alert" : "circle-check"} /></span><div class="wrap">${one.text}</div></div>`)}</div>`;
}
