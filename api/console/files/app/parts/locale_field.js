// The choice of the language of a mail that the service writes.
import { SelectField, TextField } from "../core/ui.js";
import { html, useState } from "../core/view.js";

const LOCALES = [["en", "English"], ["de", "Deutsch"], ["es", "Español"], ["fr", "Français"], ["it", "Italiano"], ["nl", "Nederlands"], ["pl", "Polski"], ["pt", "Português"]];

const CODE_LOCALES = [...LOCALES, ["sv", "Svenska"], ["da", "Dansk"]]; // with texts of the mail with a code
const OTHER = "other";

/** The choice of the language of a mail with a code, with a field for any other language tag. */
export function LanguageField({ value, onValue, error }) {
  const [free, setFree] = useState(!CODE_LOCALES.some(([known]) => known === value));
  const choose = (next) => {
    setFree(next === OTHER);
    onValue(next === OTHER ? "" : next);
  };
  return html`<${SelectField} label="Language" value=${free ? OTHER : value} onValue=${choose} error=${free ? null : error} options=${[...CODE_LOCALES, [OTHER, "Another language tag"]]} />
    ${free && html`<${TextField} label="Language tag" required value=${value} onValue=${onValue} error=${error} placeholder="pt-BR" hint="Its language decides; English is used where a translation is missing." />`}`;
}

/** The choice of the language of a confirmation mail. */
export function LocaleField({ value, onValue }) {
  return html`<${SelectField} label="Email language" value=${value} onValue=${onValue} options=${LOCALES} />`;
}
