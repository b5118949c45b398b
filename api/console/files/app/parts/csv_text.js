// Comma-separated values as text. Pure functions.

/** Return rows of cells as CSV (RFC 4180). A cell that a spreadsheet would run as a formula gets an apostrophe first. */
export const csvText = (rows) => `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
