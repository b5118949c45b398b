// The filter of a segment as conditions for people. Pure functions.

export const PROPERTIES = {
  field: "Field",
  email: "Address",
  domain: "Domain of the address",
  name: "Name",
  consent: "Consent",
  confirmed: "Confirmed",
  createdAt: "Created",
  list: "On list",
};
const TEXT = ["contains", "starts_with"];
const EQUALITY = ["eq", "ne", "in"];
const ORDER = ["lt", "le", "gt", "ge"];
const EXISTENCE = ["exists", "missing"];
export const OPERATORS = {
  field: [...EQUALITY, ...ORDER, ...TEXT, ...EXISTENCE],
  email: [...EQUALITY, ...TEXT],
  domain: EQUALITY,
  name: [...EQUALITY, ...TEXT, ...EXISTENCE],
  consent: EQUALITY,
  confirmed: ["eq"],
  createdAt: ["ge", "lt", "gt", "le"],
  list: EQUALITY,
};
const WORDS = { eq: "is", ne: "is not", in: "is one of", lt: "is less than", le: "is at most", gt: "is more than", ge: "is at least", contains: "contains", starts_with: "begins with", exists: "has a value", missing: "has no value" };
const TIMES = { lt: "before", le: "until", gt: "after", ge: "since" };

/** Return an operator in words. */
export const operatorText = (what, op) => (what === "createdAt" ? TIMES[op] : WORDS[op]);

/** True if conditions with the operator have a value. */
export const hasValue = (op) => !EXISTENCE.includes(op);

/** Return a filter as one sentence; `names` are those of lists by id. */
export function sentence(filter, names = {}) {
  if (filter.all) return joined(filter.all, " and ", names);
  if (filter.any) return joined(filter.any, " or ", names);
  if (filter.not) return `not (${sentence(filter.not, names)})`;
  const what = filter.field !== undefined ? "field" : filter.property;
  const op = filter.op ?? "eq";
  const name = what === "field" ? filter.field : PROPERTIES[what];
  const shown = (value) => (what === "list" ? names[value] ?? value : typeof value === "string" ? value.replaceAll("_", " ") : String(value));
  if (!hasValue(op)) return `${name} ${WORDS[op]}`;
  if (what === "createdAt") return `${name} ${TIMES[op]} ${String(filter.value).slice(0, 10)}`;
  return `${name} ${WORDS[op]} ${Array.isArray(filter.value) ? filter.value.map(shown).join(", ") : shown(filter.value)}`;
}

const joined = (parts, word, names) => parts.map((part) => (part.all || part.any ? `(${sentence(part, names)})` : sentence(part, names))).join(word);

/** Return a filter as {kind: all | any | none, rows}, or null if it nests deeper than the form can show. */
export function formOf(filter) {
  if (filter.not) {
    const inner = formOf(filter.not);
    return inner && (inner.kind === "any" || inner.rows.length === 1) && inner.kind !== "none" ? { kind: "none", rows: inner.rows } : null;
  }
  const kind = filter.all ? "all" : "any";
  const parts = filter.all ?? filter.any ?? [filter];
  const rows = parts.map(rowOf);
  return rows.includes(null) ? null : { kind: filter.all || filter.any ? kind : "all", rows };
}

function rowOf(condition) {
  if (condition.all || condition.any || condition.not) return null;
  const what = condition.field !== undefined ? "field" : condition.property;
  const { op = "eq", value } = condition;
  const values = Array.isArray(value) ? value : [value];
  const type = { number: "number", boolean: "boolean" }[typeof values[0]] ?? "text";
  if (values.some((one) => typeof one !== typeof values[0])) return null;
  return { what, name: condition.field ?? "", op, type, value: value === undefined ? "" : what === "createdAt" ? String(value).slice(0, 10) : values.join(", ") };
}

/** Return {kind, rows} of the form as a filter. */
export function filterOf({ kind, rows }) {
  const parts = rows.map(conditionOf);
  if (kind === "none") return { not: parts.length === 1 ? parts[0] : { any: parts } };
  return { [kind]: parts };
}

function conditionOf({ what, name, op, type, value }) {
  const subject = what === "field" ? { field: name.trim() } : { property: what };
  if (!hasValue(op)) return { ...subject, op };
  const kind = what === "field" ? type : what === "confirmed" ? "boolean" : "text";
  const one = (text) => (what === "createdAt" ? startOfDay(text) : valueOf(kind, text));
  return { ...subject, op, value: op === "in" ? value.split(",").map((text) => one(text.trim())).filter((part) => part !== "") : one(value.trim()) };
}

const startOfDay = (text) => (/^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text);

function valueOf(kind, text) {
  if (kind === "number") return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
  if (kind === "boolean") return text === "true";
  return text;
}

/** Return true if every row of the form is filled in. */
export const isComplete = ({ rows }) => rows.length > 0 && rows.every((row) => (row.what !== "field" || row.name.trim()) && (!hasValue(row.op) || row.value.trim()));
