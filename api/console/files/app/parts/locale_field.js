// The choice of the language of a mail that the service writes.
import { SelectField } from "../core/ui.js";
import { html } from "../core/view.js";

const LOCALES = [["en", "English"], ["de", "Deutsch"], ["es", "Español"], ["fr", "Français"], ["it", "Italiano"], ["nl", "Nederlands"], ["pl", "Polski"], ["pt", "Português"]];

/** The choice of the language of a confirmation mail. */
export function LocaleField({ value, onValue }) {
  return html`<${SelectField} label="Email language" value=${value} onValue=${onValue} options=${LOCALES} />`;
}
