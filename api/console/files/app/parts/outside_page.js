// What all pages for persons without a session share: the card, the password field, the state of a link from a mail.
import { session } from "../core/api.js";
import { handed, href } from "../core/router.js";
import { Brand, Button, Field, Icon, Notice } from "../core/ui.js";
import { html, useEffect, useState } from "../core/view.js";

/** A card in the middle of an empty page; `foot` stands below the card. */
export function OutsidePage({ title, lead, foot, children }) {
  useEffect(() => { document.title = `${title} · Waybill`; }, [title]);
  return html`<main class="outside" id="main" tabindex="-1"><div class="outside-frame">
    <div class="outside-card"><${Brand} /><div class="stack-tight"><h1 class="wrap">${title}</h1>${lead && html`<p class="soft">${lead}</p>`}</div>${children}</div>
    ${foot && html`<p class="small outside-foot">${foot}</p>`}
  </div></main>`;
}

/** A field for a password with a button that shows it. `fresh`: the person chooses it here. */
export function PasswordField({ label = "Password", hint, error, value, onValue, fresh, ...rest }) {
  const [shown, setShown] = useState(false);
  const limits = fresh ? { minlength: 10, maxlength: 256 } : { maxlength: 256 };
  const rule = fresh ? "At least 10 characters. Make it hard to guess, such as a few uncommon words." : undefined;
  return html`<${Field} label=${label} hint=${hint ?? rule} error=${error}>${(attributes) => html`<div class="password-box">
    <input type=${shown ? "text" : "password"} autocomplete=${fresh ? "new-password" : "current-password"} required spellcheck=${false} autocapitalize="off" ...${limits} ...${attributes} ...${rest}
      value=${value} onInput=${(event) => onValue(event.currentTarget.value)} />
    <button type="button" class="button quiet icon-only" aria-label="Show the characters" aria-pressed=${shown ? "true" : "false"} title=${shown ? "Hide" : "Show"} onClick=${() => setShown(!shown)}><${Icon} name=${shown ? "eye-off" : "eye"} /></button></div>`}<//>`;
}

/** Return the token of the link that was opened, or null. */
export const linkToken = () => handed.value.get("token");

/** What a page shows when the link has no token. */
export function IncompleteLink({ children }) {
  return html`<${Notice} tone="warn" title="This link is incomplete.">Open it from the email again, or copy the whole link into the address bar.<//>${children}`;
}

/** What a page shows after its change: a sentence and the way on, to the console or to the sign-in. */
export function DoneNote({ title, children }) {
  return html`<div role="status" class="stack"><${Notice} tone="good" title=${title}>${children}<//></div>
    ${session.value ? html`<${Button} kind="primary" to="/">Go to the console<//>` : html`<${Button} kind="primary" to="/sign-in">Sign in<//>`}`;
}

/** A link to another of these pages, with the word of the link as its child. */
export const OutsideLink = ({ to, children }) => html`<a href=${href(to)}>${children}</a>`;
