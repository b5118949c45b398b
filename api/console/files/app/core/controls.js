// Icons, buttons, menus, and the head of a page, whose actions a narrow screen puts into one menu. Pages import them from ui.js.
import ICONS from "./icons.js";
import { whyNot } from "./api.js";
import { href } from "./router.js";
import { classes, h, html, signal, useEffect, useLayoutEffect, useRef, useState } from "./view.js";

/** An icon by its name in icons.js; decorative, so hidden from screen readers. */
export function Icon({ name, size = 16 }) {
  const shapes = ICONS[name] ?? ICONS.info;
  const box = { width: size, height: size, viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round", class: "icon", "aria-hidden": "true" };
  return h("svg", box, shapes.map(([element, attributes]) => h(element, attributes)));
}

/**
 * A button, or a link that looks like one with `to` (a page) or `link` (an address).
 *
 * kind: primary | plain | danger | quiet. `why` disables it and says the reason; `role` does so for persons without
 * that role. `label` names a button that has only an icon.
 */
export function Button({ kind = "plain", icon, label, to, query, link, busy, disabled, why, role, danger, onClick, type = "button", children, ...rest }) {
  const reason = why ?? (role ? whyNot(role) : null);
  const off = Boolean(reason) || disabled;
  const name = classes("button", kind, danger && "danger", !children && "icon-only");
  const content = html`${icon && html`<${Icon} name=${icon} />`}${children}`;
  const spoken = children ? {} : { "aria-label": label, title: label };
  if ((to || link) && !off) {
    return html`<a class=${name} href=${to ? href(to, query) : link} onClick=${onClick} ...${spoken} ...${rest}>${content}</a>`;
  }
  const press = (event) => {
    if (off || busy) {
      event.preventDefault();
      return;
    }
    onClick?.(event);
  };
  return html`<button type=${type} class=${name} onClick=${press} aria-disabled=${off ? "true" : undefined} aria-busy=${busy ? "true" : undefined} title=${reason ?? undefined} ...${spoken} ...${rest}>${content}${busy && html`<span class="visually-hidden"> (working)</span>`}</button>`;
}

/** Put the list of a menu below its button, above it near the lower edge; fixed, so that no scrolled box cuts it. */
function place(list, button, start) {
  const below = button.bottom + 4 + list.offsetHeight <= window.innerHeight;
  list.style.top = `${Math.max(4, below ? button.bottom + 4 : button.top - 4 - list.offsetHeight)}px`;
  list.style.left = `${Math.max(4, Math.min(start ? button.left : button.right - list.offsetWidth, window.innerWidth - list.offsetWidth - 4))}px`;
}

/** A button that opens a list of actions: items are {text, icon, onSelect | to, why, danger}; null items are left out. */
export function Menu({ label, icon = "ellipsis", text, items, start, kind = "quiet" }) {
  const [open, setOpen] = useState(false);
  const root = useRef(null);
  useLayoutEffect(() => {
    if (!open) return undefined;
    const outside = (event) => { if (!root.current?.contains(event.target)) setOpen(false); };
    const [button, list] = root.current.children;
    const moved = () => place(list, button.getBoundingClientRect(), start);
    moved();
    document.addEventListener("pointerdown", outside);
    addEventListener("scroll", moved, true);
    addEventListener("resize", moved);
    list.querySelector("[role=menuitem]")?.focus({ preventScroll: true });
    return () => {
      document.removeEventListener("pointerdown", outside);
      removeEventListener("scroll", moved, true);
      removeEventListener("resize", moved);
    };
  }, [open]);
  const keys = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      setOpen(false);
      root.current.querySelector("button").focus();
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !open) return;
    event.preventDefault();
    const entries = [...root.current.querySelectorAll("[role=menuitem]")];
    entries[(entries.indexOf(document.activeElement) + step + entries.length) % entries.length].focus();
  };
  const entry = (item) => {
    const content = html`${item.icon && html`<${Icon} name=${item.icon} />`}${item.text}`;
    if (item.to) return html`<a role="menuitem" href=${href(item.to, item.query)} onClick=${() => setOpen(false)}>${content}</a>`;
    const select = () => {
      if (item.why) return;
      setOpen(false);
      root.current.querySelector("button").focus(); // a dialog that the item opens gives the focus back to it
      item.onSelect();
    };
    return html`<button type="button" role="menuitem" class=${item.danger ? "danger" : ""} aria-disabled=${item.why ? "true" : undefined} title=${item.why ?? undefined} onClick=${select}>${content}</button>`;
  };
  return html`<div class="menu" ref=${root} onKeyDown=${keys}>
    <button type="button" class=${classes("button", kind, !text && "icon-only")} aria-haspopup="menu" aria-expanded=${open ? "true" : "false"} aria-label=${text ? undefined : label} title=${text ? undefined : label} onClick=${() => setOpen(!open)}>${text && html`<span class="cut">${text}</span>`}<${Icon} name=${text ? "chevron-down" : icon} /></button>
    ${open && html`<div class=${classes("menu-list", start && "start")} role="menu" aria-label=${label}>${items.filter(Boolean).map(entry)}</div>`}
  </div>`;
}

const PHONE = matchMedia("(max-width: 719px)");
const phone = signal(PHONE.matches);
PHONE.addEventListener("change", () => { phone.value = PHONE.matches; });

/** The head of a page: title, a sentence, actions at the right; `back` is [path, text] of the page above. */
export function PageHead({ title, lead, back, actions, chip }) {
  useEffect(() => { document.title = `${title} · Waybill`; }, [title]);
  return html`<header class="page-head">
    <div class="grow">
      ${back && html`<a class="back" href=${href(back[0])}><${Icon} name="arrow-left" size=${14} />${back[1]}</a>`}
      <div class="row"><h1 class="wrap">${withBreaks(title)}</h1>${chip}</div>
      ${lead && html`<p class="lead">${lead}</p>`}
    </div>
    ${actions && html`<div class="page-actions"><${HeadActions}>${actions}<//></div>`}
  </header>`;
}

/** Return a title that is an address or a name of a host with places where its line may break. */
const withBreaks = (title) => (/[\s@]/.test(title) ? title : title.split(/(?<=\/)|(?=\.)/).map((part) => html`${part}<wbr />`));

/** The filters of a list that a phone shows only on demand; `used` opens them at first, because one of them is set. */
export function Filters({ used, children }) {
  const [open, setOpen] = useState(Boolean(used));
  if (!phone.value) return children;
  return html`<${Button} icon="list-filter" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)}>Filters<//>${open && html`<div class="filters">${children}</div>`}`;
}

const isPrimary = ({ props }) => props.kind === "primary";

/**
 * Buttons and menus side by side; on a phone the main button, or the first, and one menu with the others. Whatever else
 * is among them, such as a selection or an open dialog, stays as it is.
 */
export function HeadActions({ children }) {
  const all = [children].flat(Infinity).filter((one) => one !== null && typeof one === "object");
  const buttons = all.filter(({ type }) => type === Button);
  const menus = all.filter(({ type }) => type === Menu);
  const kept = buttons.find(isPrimary) ?? buttons[0];
  const moved = [...buttons.filter((one) => one !== kept), ...menus];
  const isOneMenu = moved.length === 1 && moved[0].type === Menu && !(kept && moved[0].props.text);
  if (!phone.value || moved.length === 0 || isOneMenu) return children;
  return html`${all.filter((one) => !moved.includes(one))}<${Menu} label="More actions" kind="plain" items=${moved.flatMap(itemsOf)} />`;
}

/** Return the items of a menu that do what a button or another menu does. */
function itemsOf({ type, props }) {
  if (type === Menu) return props.items.filter(Boolean).map((one) => (props.text ? { ...one, text: `${props.text}: ${one.text}` } : one));
  const { children, label, icon, to, query, link, why, role, busy, disabled, danger, onClick } = props;
  const text = children == null ? label : [children].flat(Infinity).join("");
  const onSelect = onClick ?? (() => window.location.assign(link));
  return { text, icon, query, danger, why: why ?? (role ? whyNot(role) : null) ?? (busy || disabled ? "Not possible at the moment." : null), ...(to ? { to } : { onSelect }) };
}
