// The names that a template uses, and sample values for them, kept in this browser.
const SAMPLES = "waybill.samples"; // of localStorage, followed by the id of the template
const USUAL = { __proto__: null, name: "Ann", email: "ann@example.com", order: "1042", url: "https://example.com/", unsubscribe_url: "https://example.com/unsubscribe" };
const MAX_NAMES = 200;

/** Return the names used in the parts of a template, in order of their first use; `blocks` stand for its HTML and text. */
export function usedNames({ subject, html, text, blocks }) {
  const all = [subject, ...(blocks ? [JSON.stringify(blocks)] : [html, text])].join("\n").replace(/\{\{![\s\S]*?\}\}/g, "");
  const found = [...all.matchAll(/\{\{\{?[#^]?\s*([\w.-]+)\s*\}?\}\}/g)].map((one) => one[1]);
  return [...new Set(found)].slice(0, MAX_NAMES);
}

/** Return the sample value of a name that has none yet. */
export const sampleOf = (name) => USUAL[name] ?? `[${name}]`;

/** Return the value of a name: the typed one, else its default, else its sample. The names are of strangers: "constructor" is one. */
export const valueOf = (name, samples, variables = []) => (Object.hasOwn(samples, name) ? samples[name] : variables.find((one) => one.name === name)?.default ?? sampleOf(name));

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

/** Return the JSON of `data` kept for template `id`. */
export function keptData(id) {
  try {
    return localStorage.getItem(`${SAMPLES}.${id ?? "new"}.data`) ?? "";
  } catch {
    return "";
  }
}

/** Keep the JSON of `data` for template `id`; a full or forbidden storage is no error. */
export function keepData(id, text) {
  try {
    localStorage.setItem(`${SAMPLES}.${id ?? "new"}.data`, text);
  } catch {
    // the text lasts as long as the page then
  }
}

/** Return {data, problem} of the JSON of `data`: an empty text is none, and a wrong one is a problem. */
export function parsedData(text) {
  if (!text.trim()) return { data: null, problem: null };
  try {
    const data = JSON.parse(text);
    if (typeof data === "object" && data !== null && !Array.isArray(data)) return { data, problem: null };
    return { data: null, problem: "Write a JSON object, such as {\"items\": [{\"title\": \"Lamp\"}]}." };
  } catch (error) {
    return { data: null, problem: `This is not JSON: ${error.message}` };
  }
}

/** Return the `names` that `data` does not give: a name may be in one of the two only. Items may use undeclared ones. */
export function namesBeside(names, data, variables) {
  if (!data) return names;
  const keys = new Set();
  JSON.stringify(data, (key, value) => { keys.add(key); return value; });
  const declared = new Set(variables.map((one) => one.name));
  return names.filter((name) => {
    const [first] = name.split(".");
    return !Object.hasOwn(data, first) && (declared.has(name) || !keys.has(first));
  });
}

/** Return the values of all `names`: typed ones, else defaults of `variables`, else samples. */
export const filled = (names, samples, variables) => Object.fromEntries(names.map((name) => [name, valueOf(name, samples, variables)]));
