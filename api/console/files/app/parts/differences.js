// Differences of two texts, by line and by word: the shortest edit script (Myers 1986), bounded, and its view.
import { classes, html, useMemo } from "../core/view.js";

const MAX_EDITS = 1000; // beyond, the differing middle is shown as removed and added as a whole: 1 million numbers at most
const MAX_WORDS = 400; // of a line whose words are compared
const CONTEXT = 3; // unchanged lines shown around a change

/** Return [{kind: same | removed | added, text}] that turns `before` into `after`, line by line. */
export function lineDifferences(before, after) {
  return scriptOf(before === "" ? [] : before.split("\n"), after === "" ? [] : after.split("\n"));
}

/** Return what `lineDifferences` returns, for the words of one line. */
export function wordDifferences(before, after) {
  const [old, now] = [before, after].map((text) => text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? []);
  if (old.length > MAX_WORDS || now.length > MAX_WORDS) return [{ kind: "removed", text: before }, { kind: "added", text: after }];
  return scriptOf(old, now);
}

function scriptOf(old, now) {
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const same = (pieces) => pieces.map((text) => ({ kind: "same", text }));
  const middle = shortest(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  return [...same(old.slice(0, head)), ...middle, ...same(old.slice(old.length - tail))];
}

/** Myers' greedy algorithm: O((N + M) D) time and O(D²) space; D is bounded by MAX_EDITS. */
function shortest(old, now) {
  const replaced = () => [...old.map((text) => ({ kind: "removed", text })), ...now.map((text) => ({ kind: "added", text }))];
  if (old.length === 0 || now.length === 0) return replaced();
  const most = Math.min(old.length + now.length, MAX_EDITS);
  const middle = most + 1;
  const furthest = new Int32Array(2 * most + 3).fill(-1); // x of the furthest path on each diagonal, at middle + diagonal
  furthest[middle + 1] = 0;
  const history = [];
  for (let edits = 0; edits <= most; edits += 1) {
    history.push(furthest.slice(middle - edits - 1, middle + edits + 2));
    for (let line = -edits; line <= edits; line += 2) {
      const at = middle + line;
      let x = goesDown(furthest, at, line, edits) ? furthest[at + 1] : furthest[at - 1] + 1;
      let y = x - line;
      while (x < old.length && y < now.length && old[x] === now[y]) {
        x += 1;
        y += 1;
      }
      furthest[at] = x;
      if (x >= old.length && y >= now.length) return walkedBack(history, old, now);
    }
  }
  return replaced();
}

const goesDown = (furthest, at, line, edits) => line === -edits || (line !== edits && furthest[at - 1] < furthest[at + 1]);

function walkedBack(history, old, now) {
  const found = [];
  let x = old.length;
  let y = now.length;
  for (let edits = history.length - 1; edits >= 0; edits -= 1) {
    const furthest = history[edits];
    const at = x - y + edits + 1;
    const down = goesDown(furthest, at, x - y, edits);
    const startX = edits === 0 ? 0 : furthest[down ? at + 1 : at - 1];
    const startY = edits === 0 ? 0 : startX - (x - y) - (down ? 1 : -1);
    while (x > startX && y > startY) {
      x -= 1;
      y -= 1;
      found.push({ kind: "same", text: old[x] });
    }
    if (edits === 0) break;
    if (down) {
      y -= 1;
      found.push({ kind: "added", text: now[y] });
    } else {
      x -= 1;
      found.push({ kind: "removed", text: old[x] });
    }
  }
  return found.reverse();
}

/** Give each removed line the added line that replaces it, and the other way round: `other` in both. */
function paired(rows) {
  for (let at = 0; at < rows.length; at += 1) {
    if (rows[at].kind === "same") continue;
    let end = at;
    while (end < rows.length && rows[end].kind !== "same") end += 1;
    const run = rows.slice(at, end);
    const removed = run.filter((one) => one.kind === "removed");
    const added = run.filter((one) => one.kind === "added");
    removed.slice(0, added.length).forEach((one, place) => {
      one.other = added[place].text;
      added[place].other = one.text;
    });
    rows.splice(at, run.length, ...removed, ...added);
    at = end - 1;
  }
  return rows;
}

/** A changed line with its changed words marked, if most of it stayed. */
function Words({ row }) {
  if (row.other === undefined) return row.text || " ";
  const [before, after] = row.kind === "removed" ? [row.text, row.other] : [row.other, row.text];
  const pieces = wordDifferences(before, after).filter((one) => one.kind === "same" || one.kind === row.kind);
  const kept = pieces.filter((one) => one.kind === "same").reduce((sum, one) => sum + one.text.length, 0);
  if (kept * 3 < row.text.length) return row.text || " ";
  return pieces.map((one) => (one.kind === "same" ? one.text : html`<mark>${one.text}</mark>`));
}

const SIGNS = { same: " ", removed: "−", added: "+" };
const NAMES = { removed: "removed: ", added: "added: " };

/** The differences of two texts, with a few unchanged lines around each change. */
export function Differences({ label, before, after }) {
  const all = useMemo(() => paired(lineDifferences(before ?? "", after ?? "")), [before, after]);
  if (all.every((one) => one.kind === "same")) return html`<section><h3>${label}</h3><p class="soft">No difference.</p></section>`;
  const near = new Uint8Array(all.length);
  all.forEach((one, at) => { if (one.kind !== "same") near.fill(1, Math.max(0, at - CONTEXT), at + CONTEXT + 1); });
  const gap = (at) => near[at - 1] === 1 || (at === 0 && all.length > 0);
  return html`<section class="stack-tight"><h3>${label}</h3><div class="differences" tabindex="0" role="region" aria-label=${`Differences: ${label}`}>
    ${all.map((one, at) => (near[at] ? html`<div class=${classes("difference", one.kind)}><span aria-hidden="true">${SIGNS[one.kind]}</span><code>${NAMES[one.kind] && html`<span class="visually-hidden">${NAMES[one.kind]}</span>`}<${Words} row=${one} /></code></div>` : gap(at) ? html`<div class="difference gap" aria-hidden="true">…</div>` : null))}
  </div></section>`;
}
