// The head of a page: its title and its actions, which a narrow screen puts into one menu.
import { whyNot } from "./api.js";
import { href } from "./router.js";
import { Button, Icon, Menu } from "./ui.js";
import { html, signal, useEffect } from "./view.js";

const PHONE = matchMedia("(max-width: 719px)");
const phone = signal(PHONE.matches);
PHONE.addEventListener("change", () => { phone.value = PHONE.matches; });

/** The head of a page: title, a sentence, actions at the right; `back` is [path, text] of the page above. */
export function PageHead({ title, lead, back, actions, chip }) {
  useEffect(() => { document.title = `${title} · Waybill`; }, [title]);
  return html`<header class="page-head">
    <div class="grow">
      ${back && html`<a class="back" href=${href(back[0])}><${Icon} name="arrow-left" size=${14} />${back[1]}</a>`}
      <div class="row"><h1 class="wrap">${title}</h1>${chip}</div>
      ${lead && html`<p class="lead">${lead}</p>`}
    </div>
    ${actions && html`<div class="page-actions"><${HeadActions}>${actions}<//></div>`}
  </header>`;
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
  if (!phone.value || moved.length < 2) return children;
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
