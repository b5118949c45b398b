// Reads CSV (RFC 4180) of any size from a file in pieces, within bounds.

const PIECE_BYTES = 256 * 1024;
const MAX_RECORD = 256 * 1024; // characters of one row
export const MAX_COLUMNS = 500;
const DEFUSED = /^'+[=+\-@\t\r]/;

/** A CSV that can't be read; the message names the row. */
export class CsvError extends Error {}

/** Return the separator of a file by its header line: comma, semicolon or tab. */
export function separatorOf(text) {
  const line = text.split(/[\r\n]/, 1)[0];
  return [",", ";", "\t"].map((one) => [line.split(one).length, one]).reduce((best, next) => (next[0] > best[0] ? next : best))[1];
}

/**
 * Splits text that comes in pieces into rows of cells. `feed(text, last)` returns the complete rows; what is left waits
 * for the next piece. Empty lines are left out. Takes time linear in the text.
 */
export class CsvReader {
  #rest = "";
  #separator;
  #rows = 0; // read so far, with the header

  constructor(separator) {
    this.#separator = separator;
  }

  feed(text, last = false) {
    this.#rest += text;
    const rows = [];
    let at = 0;
    for (;;) {
      const found = this.#record(at, last);
      if (found === null) break;
      at = found.end;
      if (found.cells.length > 1 || found.cells[0] !== "") {
        this.#rows += 1;
        rows.push(found.cells);
      }
    }
    this.#rest = this.#rest.slice(at);
    if (this.#rest.length > MAX_RECORD) throw new CsvError(`Row ${this.#rows} is longer than ${MAX_RECORD} characters. A quotation mark may be unclosed.`);
    return rows;
  }

  /** Return {cells, end} of the record that begins at `at`, null if it is not complete. */
  #record(at, last) {
    const text = this.#rest;
    if (at >= text.length) return null;
    const cells = [];
    for (;;) {
      const cell = text[at] === '"' ? this.#quoted(at, last) : this.#plain(at, last);
      if (cell === null) return null;
      cells.push(cell.value);
      if (cells.length > MAX_COLUMNS) throw new CsvError(`Row ${this.#rows} has more than ${MAX_COLUMNS} columns.`);
      at = cell.end;
      if (text[at] === this.#separator) {
        at += 1;
        if (at >= text.length) {
          if (!last) return null;
          cells.push("");
          return { cells, end: at };
        }
        continue;
      }
      if (text[at] === "\r" && at + 1 >= text.length && !last) return null; // its line feed may follow
      return { cells, end: text[at] === "\r" && text[at + 1] === "\n" ? at + 2 : at + 1 };
    }
  }

  #plain(at, last) {
    const text = this.#rest;
    let end = at;
    while (end < text.length && text[end] !== this.#separator && text[end] !== "\n" && text[end] !== "\r") end += 1;
    if (end >= text.length && !last) return null;
    return { value: armed(text.slice(at, end)), end };
  }

  #quoted(at, last) {
    const text = this.#rest;
    let end = at + 1;
    for (;;) {
      end = text.indexOf('"', end);
      if (end < 0 || (end + 1 >= text.length && !last)) {
        if (last) throw new CsvError(`Row ${this.#rows} has an unclosed quotation mark.`);
        return null;
      }
      if (text[end + 1] !== '"') break;
      end += 2;
    }
    const value = text.slice(at + 1, end).replaceAll('""', '"');
    const after = text[end + 1];
    if (after !== undefined && after !== this.#separator && after !== "\n" && after !== "\r") throw new CsvError(`Row ${this.#rows} has text after a closing quotation mark.`);
    return { value: armed(value), end: end + 1 };
  }
}

/** Return a cell without the apostrophe that an export puts before formulas. */
const armed = (cell) => (DEFUSED.test(cell) ? cell.slice(1) : cell);

/** Return the decoder of a file by its first octets: UTF-8, UTF-16, else Windows-1252. */
async function encodingOf(file) {
  const head = new Uint8Array(await file.slice(0, PIECE_BYTES).arrayBuffer());
  if (head[0] === 0xff && head[1] === 0xfe) return "utf-16le";
  if (head[0] === 0xfe && head[1] === 0xff) return "utf-16be";
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(head, { stream: true });
    return "utf-8";
  } catch {
    return "windows-1252";
  }
}

/**
 * Yield {rows, readBytes} of a file piece by piece, the header row first. Ends early when `signal` aborts.
 */
export async function* csvPieces(file, { signal } = {}) {
  const decoder = new TextDecoder(await encodingOf(file));
  let reader = null;
  for (let at = 0; at < file.size && !signal?.aborted; at += PIECE_BYTES) {
    const last = at + PIECE_BYTES >= file.size;
    const text = decoder.decode(await file.slice(at, at + PIECE_BYTES).arrayBuffer(), { stream: !last });
    reader ??= new CsvReader(separatorOf(text));
    yield { rows: reader.feed(text, last), readBytes: Math.min(file.size, at + PIECE_BYTES) };
  }
}
