// Turns rows of a CSV into contacts by a mapping of its columns, and finds what is wrong with them. Pure.
import { csvPieces } from "./csv.js";

export const BATCH = 1000; // contacts of one request
const MAX_BATCH_CHARACTERS = 4_000_000;
const MAX_FIELDS = 50;
const MAX_NAME = 320;
const MAX_TEXT = 1000;
const FIELD_NAME = /^[A-Za-z_][A-Za-z0-9_.-]{0,63}$/;
const ADDRESS = /^[^\s@"<>(),;:\\]+@[^\s@<>(),;:\\]+\.[^\s@<>(),;:\\]+$/;
const EMAILS = ["email", "e-mail", "email address", "e-mail address", "address", "mail"];
const NAMES = ["name", "full name", "full_name"];
const EXPORTED = ["id", "consent", "consentAt", "consentBy", "confirmed", "lists", "suppressed", "suppressionReason", "optedOutOf", "createdAt", "updatedAt"];

/** Return a first guess of what each column of the header means: {as: email | name | field | skip, name, type}. */
export function guessed(header) {
  const columns = header.map((title) => guess(title.trim()));
  for (const kind of ["email", "name"]) {
    const all = columns.filter((one) => one.as === kind);
    for (const other of all.slice(1)) other.as = "skip";
  }
  return columns;
}

function guess(title) {
  const low = title.toLowerCase();
  const [, name, type] = /^(?:fields\.)?(.*?)(?::(number|boolean))?$/.exec(title);
  const field = { name: fieldName(name), type: type ?? "text" };
  if (EMAILS.includes(low)) return { as: "email", ...field };
  if (NAMES.includes(low)) return { as: "name", ...field };
  return { as: !title || EXPORTED.includes(title) ? "skip" : "field", ...field };
}

/** Return a title of a column as the name of a contact field. */
const fieldName = (title) => title.trim().replace(/[^A-Za-z0-9_.-]+/g, "_").replace(/^[^A-Za-z_]+/, "").slice(0, 64);

/** Return what is wrong with a mapping, or null. */
export function mappingFault(columns) {
  const emails = columns.filter((one) => one.as === "email").length;
  if (emails !== 1) return emails ? "Two columns are mapped to the address. Choose one." : "Choose the column that holds the address.";
  if (columns.filter((one) => one.as === "name").length > 1) return "Two columns are mapped to the name. Choose one.";
  const fields = columns.filter((one) => one.as === "field").map((one) => one.name);
  const wrong = fields.find((name) => !FIELD_NAME.test(name) || ["email", "name"].includes(name));
  if (wrong !== undefined) return `“${wrong}” isn't a valid field name. Use letters, digits, _ . and -, starting with a letter or _. The names email and name are reserved.`;
  const twice = fields.find((name, at) => fields.indexOf(name) !== at);
  if (twice !== undefined) return `Two columns are mapped to the field ${twice}.`;
  return fields.length > MAX_FIELDS ? `${fields.length} fields are mapped; a contact can have at most ${MAX_FIELDS}.` : null;
}

/** Return the contact of a row as {contact} or what is wrong as {fault}. */
export function contactOf(cells, columns) {
  const contact = { fields: {} };
  for (const [at, column] of columns.entries()) {
    const text = (cells[at] ?? "").trim();
    if (column.as === "skip" || (text === "" && column.as !== "email")) continue;
    if (column.as === "email") contact.email = text;
    else if (column.as === "name") contact.name = text;
    else {
      const value = valueOf(column.type, text);
      if (value === undefined) return { fault: `“${text.slice(0, 80)}” in ${column.name} is not ${column.type === "number" ? "a number" : "yes or no"}.` };
      contact.fields[column.name] = value;
    }
  }
  return faultOf(cells, columns, contact) ?? { contact };
}

function faultOf(cells, columns, contact) {
  if (cells.length > columns.length) return { fault: `The row has ${cells.length} cells; the header has ${columns.length}.` };
  if (!contact.email) return { fault: "The address is missing." };
  if (contact.email.length > 320 || !ADDRESS.test(contact.email)) return { fault: `“${contact.email.slice(0, 80)}” is not an address.` };
  if (contact.name?.length > MAX_NAME) return { fault: `The name has more than ${MAX_NAME} characters.` };
  const long = Object.entries(contact.fields).find(([, value]) => typeof value === "string" && value.length > MAX_TEXT);
  return long ? { fault: `${long[0]} has more than ${MAX_TEXT} characters.` } : null;
}

function valueOf(type, text) {
  if (type === "number") return Number.isFinite(Number(text)) ? Number(text) : undefined;
  if (type === "boolean") return /^(true|yes|1)$/i.test(text) ? true : /^(false|no|0)$/i.test(text) ? false : undefined;
  return text;
}

/**
 * Yield {batch, faults, readBytes} of a file: at most BATCH contacts as {row, contact},
 * and the rows that are not sent as {row, email, text}. Rows are counted as a spreadsheet does, the header being row 1.
 */
export async function* contactBatches(file, columns, { signal } = {}) {
  let row = 0;
  let batch = [];
  let size = 0;
  let faults = [];
  for await (const { rows, readBytes } of csvPieces(file, { signal })) {
    for (const cells of rows) {
      row += 1;
      if (row === 1) continue;
      const { contact, fault } = contactOf(cells, columns);
      if (fault) {
        faults.push({ row, email: cells[columns.findIndex((one) => one.as === "email")] ?? "", text: fault });
        continue;
      }
      batch.push({ row, contact });
      size += cells.reduce((sum, cell) => sum + cell.length, 0);
      if (batch.length === BATCH || size > MAX_BATCH_CHARACTERS) {
        yield { batch, faults, readBytes };
        [batch, faults, size] = [[], [], 0];
      }
    }
    if (faults.length > BATCH) {
      yield { batch: [], faults, readBytes };
      faults = [];
    }
  }
  yield { batch, faults, readBytes: file.size };
}
