// A table of very many rows: only those near the screen are in the document. All rows have the same height.
import { useInterval } from "../core/api.js";
import { href } from "../core/router.js";
import { inField } from "../core/table.js";
import { ago, classes, dateTime, html, useCallback, useEffect, useLayoutEffect, useRef, useState, utc } from "../core/view.js";

const OVERSCAN = 2; // rows above and below the screen
const STEP = 2; // the window moves by so many rows, so that not each pixel draws anew
const AHEAD = 80; // the next page is read when so few rows remain below
const MAX_CACHED = 200; // rows whose cells are kept
const TICK_MS = 15_000; // "4 min ago" is drawn anew

const narrow = matchMedia("(max-width: 719px)");

/** Return true while the screen is narrow: rows are cards of two lines then. */
export function useNarrow() {
  const [is, set] = useState(narrow.matches);
  useEffect(() => {
    const change = () => set(narrow.matches);
    narrow.addEventListener("change", change);
    return () => narrow.removeEventListener("change", change);
  }, []);
  return is;
}

/**
 * The table. `rows` is an array of {id, changes, …}; it may be changed in place, then the caller draws anew. A row that is
 * changed in place counts its `changes`: the cells of other rows are not drawn anew.
 *
 * `columns`: [{key, title, hideTitle, width (of CSS grid), cell(row) or time(row)}]; the cell of `linkKey` links to
 * `rowTo(row)`, `time` returns a Unix time in milliseconds.
 * `more` and `onMore` read the next page; `selection`: {chosen: Set of ids, onChange(Set)}; `onOpen(row, event)` runs on
 * a press of the link.
 */
export function VirtualRows({ label, rows, columns, rowTo, linkKey, rowHeight = 40, cardHeight = 64, more, loading, onMore, selection, onOpen }) {
  const height = useNarrow() ? cardHeight : rowHeight;
  const body = useRef(null);
  const window_ = useWindow({ body, height, count: rows.length });
  const marked = useMark({ body, height, rows });
  const { from, until } = window_;
  useEffect(() => {
    if (more && !loading && until > rows.length - AHEAD) onMore();
  }, [until, rows.length, more, loading]);
  const shown = [];
  for (let at = from; at < Math.min(until, rows.length); at += 1) shown.push(at);
  const mark = marked.at(rows);
  if (mark >= 0 && (mark < from || mark >= until)) shown.push(mark); // keeps the focus while it is scrolled out
  const cells = useCells({ columns, rowTo, linkKey, onOpen, onFocus: marked.set });
  const template = { gridTemplateColumns: [selection && "32px", ...columns.map((one) => one.width)].filter(Boolean).join(" ") };
  const choose = (ids, on) => {
    const chosen = new Set(selection.chosen);
    for (const id of ids) chosen[on ? "add" : "delete"](id);
    selection.onChange(chosen);
  };
  const all = selection && rows.length > 0 && selection.chosen.size >= rows.length;
  return html`<div class="vrows" role="table" aria-label=${label} aria-rowcount=${more ? -1 : rows.length + 1} aria-busy=${loading ? "true" : "false"}>
    <div role="rowgroup"><div class="vrow vrow-head" role="row" aria-rowindex="1" style=${template}>
      ${selection && html`<span role="columnheader"><input type="checkbox" aria-label="Select all loaded rows" checked=${all} onChange=${(event) => choose(rows.map((row) => row.id), event.currentTarget.checked)} /></span>`}
      ${columns.map((one) => html`<span role="columnheader" class=${one.end ? "end" : ""} key=${one.key}>${one.hideTitle ? html`<span class="visually-hidden">${one.title}</span>` : one.title}</span>`)}
    </div></div>
    <div class="vrows-body" role="rowgroup" ref=${body} style=${{ height: `${rows.length * height}px` }}>
      ${shown.map((at) => {
        const row = rows[at];
        const picked = selection?.chosen.has(row.id);
        return html`<div key=${row.id} class=${classes("vrow", at === mark && "current", picked && "picked")} role="row" aria-rowindex=${at + 2} data-id=${row.id} style=${{ ...template, transform: `translateY(${at * height}px)`, height: `${height}px` }}>
          ${selection && html`<span role="cell" class="vcell-select"><input type="checkbox" aria-label=${`Select ${row.id}`} checked=${picked} onChange=${(event) => choose([row.id], event.currentTarget.checked)} /></span>`}
          ${cells(row)}
        </div>`;
      })}
    </div>
  </div>`;
}

/** Return a function that returns the cells of a row: the same ones until the row or the columns change. */
function useCells({ columns, rowTo, linkKey, onOpen, onFocus }) {
  const cache = useRef({ columns: null, byRow: new Map() });
  const [, draw] = useState(0);
  useInterval(() => {
    cache.current.columns = null;
    draw((old) => old + 1);
  }, TICK_MS);
  if (cache.current.columns !== columns || cache.current.byRow.size > MAX_CACHED) cache.current = { columns, byRow: new Map() };
  const latest = useRef(onOpen);
  latest.current = onOpen;
  const { byRow } = cache.current;
  return (row) => {
    const known = byRow.get(row);
    if (known && known.changes === row.changes) return known.cells;
    const cells = columns.map((one) => {
      const name = classes(`vcell-${one.key}`, one.end && "end");
      if (one.time) return timeCell(one.key, name, new Date(one.time(row)).toISOString());
      const content = one.cell(row);
      return html`<span role="cell" key=${one.key} class=${name}>${one.key === linkKey ? html`<a class="row-link" href=${href(rowTo(row))} onClick=${(event) => latest.current?.(row, event)} onFocus=${() => onFocus(row.id)}>${content}</a>` : content}</span>`;
    });
    byRow.set(row, { changes: row.changes, cells });
    return cells;
  };
}

const timeCell = (key, name, at) => html`<time role="cell" key=${key} class=${name} datetime=${at} title=${`${dateTime(at)} · ${utc(at)}`}>${ago(at)}</time>`;

/** Return the rows to draw, {from, until}, as the document scrolls. */
function useWindow({ body, height, count }) {
  const [range, setRange] = useState({ from: 0, until: 40 });
  const measure = useCallback(() => {
    if (!body.current) return;
    const above = -body.current.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(above / height) - OVERSCAN);
    const from = Math.min(first - (first % STEP), Math.max(0, count - 1));
    const until = from + Math.ceil(innerHeight / height) + 2 * OVERSCAN + STEP;
    setRange((old) => (old.from === from && old.until === until ? old : { from, until }));
  }, [height, count]);
  useLayoutEffect(measure, [measure]);
  useEffect(() => {
    let frame = 0;
    const later = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        measure();
      });
    };
    addEventListener("scroll", later, { passive: true });
    addEventListener("resize", later);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", later);
      removeEventListener("resize", later);
    };
  }, [measure]);
  return range;
}

/** j and k move a mark over the rows and focus their links, x selects; the mark stays on its row when others come. */
function useMark({ body, height, rows }) {
  const [id, setId] = useState(null);
  const known = useRef({ id: null, at: -1 });
  known.current.id = id;
  const at = (list) => {
    const { current } = known;
    if (current.id === null) return -1;
    if (list[current.at]?.id !== current.id) current.at = list.findIndex((row) => row.id === current.id);
    return current.at;
  };
  const latest = useRef(rows);
  latest.current = rows;
  useEffect(() => {
    const press = (event) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || inField(event.target) || document.querySelector("dialog[open]")) return;
      const list = latest.current;
      if (event.key === "x") body.current?.querySelector(".current input[type=checkbox]")?.click();
      if ((event.key !== "j" && event.key !== "k") || list.length === 0) return;
      const place = Math.max(0, Math.min(list.length - 1, at(list) + (event.key === "j" ? 1 : -1)));
      setId(list[place].id);
      show(body.current, place, height);
      requestAnimationFrame(() => requestAnimationFrame(() => body.current?.querySelector(`[aria-rowindex="${place + 2}"] a`)?.focus({ preventScroll: true })));
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [height]);
  return { at, set: setId };
}

/** Scroll so that the row at `place` is on the screen, below what sticks to the top. */
function show(body, place, height) {
  const top = body.getBoundingClientRect().top + place * height;
  const head = 100;
  if (top < head) scrollBy({ top: top - head, behavior: "instant" });
  else if (top + height > innerHeight - 16) scrollBy({ top: top + height - innerHeight + 16, behavior: "instant" });
}
