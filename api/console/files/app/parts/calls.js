// The panel of the API calls behind the page, as code to copy.
import { BASE, pageCalls } from "../core/api.js";
import { Code, Dialog, Segments } from "../core/ui.js";
import { html, useState } from "../core/view.js";
import { LANGUAGES, snippet } from "./snippets.js";

const LANGUAGE = "waybill.language";

/** The language of snippets that the person chose last. */
export const chosenLanguage = () => localStorage.getItem(LANGUAGE) ?? "curl";

/** A choice of the language of snippets, which the browser remembers. */
export function LanguageChoice({ value, onValue }) {
  const choose = (language) => {
    localStorage.setItem(LANGUAGE, language);
    onValue(language);
  };
  return html`<${Segments} label="Language" options=${LANGUAGES} value=${value} onValue=${choose} />`;
}

export function Calls({ onClose }) {
  const [language, setLanguage] = useState(chosenLanguage());
  const origin = window.location.origin + BASE.slice(0, -1);
  const made = pageCalls.value;
  return html`<${Dialog} title="API calls of this page" wide onClose=${onClose}>
    <div class="row-wide"><p class="soft">The console only uses the public API. With an API key in <code>$KEY</code> you can make the same calls.</p><${LanguageChoice} value=${language} onValue=${setLanguage} /></div>
    ${made.length === 0 && html`<p>This page made no calls that work with an API key.</p>`}
    ${made.map((one) => html`<section class="stack-tight" key=${one.method + one.url}><h3 class="mono">${one.operation}</h3><${Code} text=${snippet(language, one, origin)} label=${one.operation} /></section>`)}
  <//>`;
}
