// The filters of the list of messages: the text of the search field, the address of the page and the query of the API.
import { serviceNow } from "../core/view.js";

export const STATUSES = ["queued", "sending", "delivered", "bounced", "complained", "failed", "rejected", "scheduled", "canceled"];
const SOURCES = ["api", "smtp", "broadcast", "verification", "forward", "system"];
const SCOPES = ["recipient", "message", "site", "session"];
export const RANGES = [["", "Any time"], ["15m", "Last 15 minutes"], ["1h", "Last hour"], ["24h", "Last 24 hours"], ["7d", "Last 7 days"], ["30d", "Last 30 days"], ["custom", "From and until"]];
const RANGE_MS = { "15m": 900_000, "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000, "30d": 2_592_000_000 };

/** The filters: name in the API, operator in the search field, what it selects, and the values if there are few. */
export const FILTERS = [
  { name: "status", word: "status", hint: "Status of the message", values: STATUSES },
  { name: "to", word: "to", hint: "Address of any recipient" },
  { name: "recipientDomain", word: "to", hint: "Domain of any recipient", hidden: true },
  { name: "search", word: "subject", hint: "Anywhere in the subject, sender or a recipient" },
  { name: "domain", word: "domain", hint: "Domain of the sender" },
  { name: "stream", word: "stream", hint: "Name of the stream" },
  { name: "tag", word: "tag", hint: "Tag; several must all match", many: true },
  { name: "metadata", word: "metadata", hint: "Metadata, as name:value" },
  { name: "template", word: "template", hint: "Name of the template, any version" },
  { name: "source", word: "source", hint: "How the message was sent", values: SOURCES },
  { name: "broadcast", word: "broadcast", hint: "Id of the broadcast" },
  { name: "scope", word: "bounce", hint: "What a bounce was about", values: SCOPES },
];
const BY_NAME = Object.fromEntries(FILTERS.map((one) => [one.name, one]));
const OTHER_WORDS = { from: "domain", text: "search", scope: "scope", search: "search", meta: "metadata", recipientdomain: "recipientDomain", is: "status" };
const NAME_OF = { ...Object.fromEntries(FILTERS.filter((one) => !one.hidden).map((one) => [one.word, one.name])), ...OTHER_WORDS };

/** Return the filters in the address of the page: {status: "bounced", tag: ["a", "b"]}. */
export function filtersOf(query) {
  const found = {};
  for (const { name, many } of FILTERS) {
    if (many) found[name] = query.getAll(name);
    else if (query.get(name)) found[name] = query.get(name);
  }
  return found;
}

/** Return the query of the API for the filters and the range in the address of the page. */
export function apiQuery(query, now = serviceNow()) {
  const length = RANGE_MS[query.get("range")];
  const limits = length
    ? { from: new Date(now - length).toISOString() }
    : query.get("range") === "custom" ? { from: query.get("from"), until: query.get("until") } : {};
  return { ...filtersOf(query), ...limits };
}

/**
 * Return what a text in the search field means: {changes, rest, problem}.
 *
 * `changes` are filters from operators such as `status:bounced tag:"two words"`; `rest` is the text without them.
 */
export function parsed(text) {
  const changes = {};
  const rest = [];
  let problem = null;
  for (const [whole, word, quoted, plain] of text.matchAll(/(?:(\w+):)?(?:"([^"]*)"?|(\S+))/g)) {
    const value = (quoted ?? plain ?? "").trim();
    const name = word && NAME_OF[word.toLowerCase()];
    if (!name) rest.push(whole.replaceAll('"', ""));
    else problem ??= taken(changes, word.toLowerCase(), name, value);
  }
  return { changes, rest: rest.join(" "), problem };
}

function taken(changes, word, name, value) {
  if (!value) return `Type a value after ${word}:`;
  const { values, many } = BY_NAME[name];
  if (values && !values.includes(value.toLowerCase())) return `${word}: must be one of ${values.join(", ")}.`;
  if (many) changes[name] = [...(changes[name] ?? []), value];
  else if (name === "to" && !/[^@]@/.test(value)) changes.recipientDomain = value.replace(/^@/, "");
  else if (word === "from" && /[^@]@/.test(value)) changes.search = value;
  else changes[name] = values ? value.toLowerCase() : value.replace(name === "domain" ? /^@/ : "", "");
  return null;
}

/** Return the chips of the filters: [{name, value, text}]. */
export function chipsOf(filters) {
  return FILTERS.flatMap(({ name, word }) => [filters[name] ?? []].flat().map((value) => ({ name, value, text: name === "search" ? `“${value}”` : `${word}: ${value}` })));
}

/**
 * Return true if a message of the live tail belongs to the list, false if not, null if the event does not tell.
 */
export function matches(filters, message) {
  if (filters.metadata || filters.template || filters.source || filters.broadcast || filters.scope) return null;
  const has = (text, part) => (text ?? "").toLowerCase().includes(part.toLowerCase());
  const address = (text) => (/<([^>]*)>\s*$/.exec(text)?.[1] ?? text).toLowerCase();
  const to = message.to.map(address);
  if (filters.status && message.status !== filters.status) return false;
  if (filters.stream && message.stream !== filters.stream) return false;
  if (!(filters.tag ?? []).every((tag) => message.tags.includes(tag))) return false;
  if (filters.domain && !address(message.from ?? "").endsWith(`@${filters.domain.toLowerCase()}`)) return false;
  if (filters.to && !to.includes(filters.to.toLowerCase())) return false;
  if (filters.recipientDomain && !to.some((one) => one.endsWith(`@${filters.recipientDomain.toLowerCase()}`))) return false;
  if (filters.search) return has(message.subject, filters.search) || has(message.from, filters.search) || message.to.some((one) => has(one, filters.search));
  return true;
}
