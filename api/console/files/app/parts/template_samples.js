// The names that a template uses, and sample values for them, kept in this browser.
const SAMPLES = "waybill.samples"; // of localStorage, followed by the id of the template
const USUAL = { __proto__: null, name: "Ann", email: "ann@example.com", order: "1042", url: "https://example.com/", unsubscribe_url: "https://example.com/unsubscribe" };
const MAX_NAMES = 200;

/** Return the names used in the parts of a template, in order of their first use. */
export function usedNames({ subject, html, text }) {
  const all = [subject, html, text].join("\n").replace(/\{\{![\s\S]*?\}\}/g, "");
  const found = [...all.matchAll(/\{\{\{?[#^]?\s*([\w.-]+)\s*\}?\}\}/g)].map((one) => one[1]);
  return [...new Set(found)].slice(0, MAX_NAMES);
}

/** Return the sample value of a name that has none yet. */
export const sampleOf = (name) => USUAL[name] ?? `[${name}]`;

/** Return the value of a name: the typed one, else its sample. The names are of strangers: "constructor" is one. */
export const valueOf = (name, samples) => (Object.hasOwn(samples, name) ? samples[name] : sampleOf(name));

/** Return the values kept for template `id`. */
export function keptSamples(id) {
  try {
    return JSON.parse(localStorage.getItem(`${SAMPLES}.${id ?? "new"}`) ?? "{}");
  } catch {
    return {};
  }
}

/** Keep the values for template `id`; a full or forbidden storage is no error. */
export function keepSamples(id, values) {
  try {
    localStorage.setItem(`${SAMPLES}.${id ?? "new"}`, JSON.stringify(values));
  } catch {
    // the values last as long as the page then
  }
}

/** Return the values of all `names`: typed ones, else samples. */
export const filled = (names, samples) => Object.fromEntries(names.map((name) => [name, valueOf(name, samples)]));
