// The inline markup of blocks: **bold**, *italic*, [text](address), \ escapes, {{merge fields}}. Pure functions.
//
// The service renders the message; the composer reads the markup only to draw its canvas.

const FIELD = /^\{\{\{?[^{}]*\}?\}\}/;
const LINK = /^\[((?:\\.|[^\]\\])*)\]\(((?:\{\{[^{}\n]*\}\}|[^()\s{}]|\([^()\s{}]*\))+)\)/;
const MARKS = [["**", "bold"], ["*", "italic"]];

/** Return `text` as pieces: {kind: "text" | "field", text}, {kind: "bold" | "italic", pieces}, {kind: "link", url, pieces}. */
export function parsed(text) {
  const pieces = [];
  let plain = "";
  const flush = () => {
    if (plain) pieces.push({ kind: "text", text: plain });
    plain = "";
  };
  const found = (piece) => {
    flush();
    pieces.push(piece);
  };
  for (let at = 0; at < text.length; ) {
    const rest = text.slice(at);
    const [length, piece] = special(rest);
    if (piece) found(piece);
    else plain += length === 2 ? rest[1] : rest[0];
    at += length;
  }
  flush();
  return pieces;
}

/** Return [length, piece] of what begins `rest`; without a piece it is one plain character, or two with its escape. */
function special(rest) {
  if (rest[0] === "\\" && /[\\*[\](){}_]/.test(rest[1] ?? "")) return [2, null];
  const field = FIELD.exec(rest);
  if (field) return [field[0].length, { kind: "field", text: field[0] }];
  const link = LINK.exec(rest);
  if (link) return [link[0].length, { kind: "link", url: link[2], pieces: parsed(link[1]) }];
  for (const [mark, kind] of MARKS) {
    const end = rest.startsWith(mark) ? closing(rest, mark) : -1;
    if (end > mark.length) return [end + mark.length, { kind, pieces: parsed(rest.slice(mark.length, end)) }];
  }
  return [1, null];
}

/** Return where `mark` closes, or -1; a single star does not close at a double one. */
function closing(rest, mark) {
  for (let at = mark.length; at < rest.length; at += 1) {
    if (rest[at] === "\\") at += 1;
    else if (mark === "*" && rest.startsWith("**", at)) at += 1;
    else if (rest.startsWith(mark, at)) return mark === "**" && rest.startsWith("***", at) ? at + 1 : at;
  }
  return -1;
}

const PLURAL = /^(?!(is|has|show)[_.-])\w.*[^sui]s$/;
const SECTION = /^\{\{([#^/])\s*([\w.-]+)\s*\}\}$/;

/**
 * Return the pieces with the tags of sections as {kind: "section", text, label}: "if name", "else", "end". By its name alone
 * a list is told from a condition: a plural is "repeat items". The end before an "else" is left out.
 */
export function withSections(pieces) {
  const tagOf = (piece) => (piece?.kind === "field" && SECTION.exec(piece.text)) || [];
  const uses = (name) => pieces.some((piece) => piece.kind === "field" && [`{{${name}}}`, `{{^${name}}}`].includes(piece.text));
  const nextTag = (at) => tagOf(pieces.slice(at + 1).find((piece) => piece.kind !== "text" || piece.text.trim()));
  const closed = new Set(); // the names whose end stands before an "else"
  return pieces.flatMap((piece, at) => {
    const [, sign, name] = tagOf(piece);
    if (!sign) return [piece];
    const [, nextSign, nextName] = nextTag(at);
    if (sign === "/" && nextSign === "^" && nextName === name) {
      closed.add(name);
      return [];
    }
    const isElse = sign === "^" && closed.delete(name);
    const label = sign === "/" ? "end" : isElse ? "else" : sign === "^" ? `if no ${name}` : PLURAL.test(name) && !uses(name) ? `repeat ${name}` : `if ${name}`;
    return [{ kind: "section", text: piece.text, label }];
  });
}

/** Return [text, from, to] with the selected part between marks, or without them if it has them. */
export function marked(text, from, to, mark) {
  const size = mark.length;
  const around = text.slice(from - size, from) === mark && text.slice(to, to + size) === mark;
  const lone = mark === "**" || text[from - size - 1] !== "*" || text.slice(from - 3, from) === "***";
  if (around && lone && from >= size) return [text.slice(0, from - size) + text.slice(from, to) + text.slice(to + size), from - size, to - size];
  const inner = text.slice(from, to) || "text";
  return [text.slice(0, from) + mark + inner + mark + text.slice(to), from + size, from + size + inner.length];
}

/** Return [text, from, to] with the selected part as a link to `url`. */
export function linked(text, from, to, url, shown) {
  const link = `[${shown.replace(/[\\[\]]/g, "\\$&")}](${url.replace(/[()\s]/g, (one) => `%${one.charCodeAt(0).toString(16)}`)})`;
  return [text.slice(0, from) + link + text.slice(to), from + link.length, from + link.length];
}

/** Return what was typed of a merge field before the caret ("na" of "{{na"), or null outside of one. */
export function typedField(text, caret) {
  const found = /\{\{\s*([\w.-]*)$/.exec(text.slice(0, caret));
  return found ? found[1] : null;
}

/** Return [text, caret] with `{{name}}` in place of the merge field that is typed before the caret, or at the caret. */
export function withField(text, caret, name) {
  const before = text.slice(0, caret).replace(/\{\{\s*[\w.-]*$/, "");
  const after = text.slice(caret);
  const rest = typedField(text, caret) === null ? after : after.replace(/^[\w.-]*\s*\}\}/, "");
  const field = `{{${name}}}`;
  return [before + field + rest, before.length + field.length];
}

/** Return the merge fields that fit what was typed, those that begin with it first. */
export function fitting(names, typed) {
  const wanted = typed.toLowerCase();
  const fits = names.filter((name) => name.toLowerCase().includes(wanted));
  return [...fits.filter((name) => name.toLowerCase().startsWith(wanted)), ...fits.filter((name) => !name.toLowerCase().startsWith(wanted))];
}
