// The table of every list: columns, rows as links, skeleton, empty and error states, more rows, keys j and k.
import { Button, ErrorNote, useLate } from "./ui.js";
import { href } from "./router.js";
import { classes, html, number, useEffect, useRef, useState } from "./view.js";

/**
 * A table.
 *
 * `columns`: [{key, title, cell(row), end, width, hideTitle, button: its hidden title is of a button, not of a menu, narrow}]; the first cell links to `rowTo(row)` (a path) if given.
 * `state`: what `usePages` or `useCall` returned, with `rows`; `empty`: what stands there without rows.
 * `selection`: {chosen: Set of ids, onChange(Set)} adds checkboxes. `label` names the table for screen readers.
 * `rowTone(row)` tints a row: "warn", "bad" or null.
 * On narrow screens each row becomes a card; `narrow` is "bare" for a cell without its title there, "aside" for one
 * beside the first cell, "away" for one that is left out.
 */
export function Table({ label, columns, state, rowTo, rowKey = (row) => row.id, empty, selection, onRowOpen, rowTone }) {
  const { rows, loading, error, next, reload } = state;
  const late = useLate(loading && rows.length === 0);
  const [current, setCurrent] = useState(-1);
  const body = useRef(null);
  useRowKeys({ count: rows.length, current, setCurrent, body });
  if (error && rows.length === 0) return html`<div class="card card-body"><${ErrorNote} error=${error} retry=${reload} /></div>`;
  if (!loading && rows.length === 0 && !next) return html`<div class="card">${empty}</div>`;
  const all = rows.length > 0 && selection && rows.every((row) => selection.chosen.has(rowKey(row)));
  const choose = (keys, on) => {
    const chosen = new Set(selection.chosen);
    for (const key of keys) chosen[on ? "add" : "delete"](key);
    selection.onChange(chosen);
  };
  return html`<div class="card">
    ${error && html`<div class="card-body"><${ErrorNote} error=${error} retry=${reload} /></div>`}
    <div class="table-frame" tabindex="0" role="region" aria-label=${label}><table class="table cards" aria-busy=${loading ? "true" : "false"}>
      <caption class="visually-hidden">${label}</caption>
      <thead><tr>
        ${selection && html`<th scope="col" style=${{ width: "36px" }}><input type="checkbox" aria-label="Select all rows" checked=${Boolean(all)} onChange=${(event) => choose(rows.map(rowKey), event.currentTarget.checked)} /></th>`}
        ${columns.map((column) => html`<th scope="col" class=${column.end ? "end" : ""} style=${column.width ? { width: column.width } : undefined}>${column.hideTitle ? html`<span class="visually-hidden">${column.title}</span>` : column.title}</th>`)}
      </tr></thead>
      <tbody ref=${body}>
        ${late && rows.length === 0 && Array.from({ length: 6 }, (_, at) => html`<tr aria-hidden="true" key=${at}>${selection && html`<td></td>`}${columns.map(() => html`<td><span class="skeleton" style=${{ width: `${40 + ((at * 23) % 50)}%` }}></span></td>`)}</tr>`)}
        ${rows.map((row, at) => html`<tr key=${rowKey(row)} class=${classes(at === current && "current", rowTone?.(row))}>
          ${selection && html`<td class="select"><input type="checkbox" aria-label=${`Select ${rowKey(row)}`} checked=${selection.chosen.has(rowKey(row))} onChange=${(event) => choose([rowKey(row)], event.currentTarget.checked)} /></td>`}
          ${columns.map((column, place) => html`<${Cell} ...${{ column, first: place === 0, row, to: place === 0 && rowTo ? href(rowTo(row)) : null, onRowOpen }} />`)}
        </tr>`)}
      </tbody>
    </table></div>
    ${(next || (loading && rows.length > 0)) && html`<div class="table-foot"><span>${number(rows.length)} shown</span>${next && html`<${Button} busy=${loading} onClick=${next}>Show more<//>`}</div>`}
  </div>`;
}

/** One cell; its classes tell a narrow screen what leads the card, what is its menu, and what is blank. */
function Cell({ column, first, row, to, onRowOpen }) {
  const shown = column.cell(row);
  const place = first ? "lead" : column.hideTitle ? (column.button ? "button-cell" : "menu-cell") : isBlank(shown) && "blank";
  return html`<td class=${classes(column.end && "end", place, column.narrow)} data-label=${first || column.hideTitle || column.narrow ? undefined : column.title}>${to ? html`<a class="row-link" href=${to} onClick=${onRowOpen && ((event) => onRowOpen(row, event))}>${shown}</a>` : shown}</td>`;
}

const isBlank = (shown) => shown === "–" || shown === null || shown?.props?.children === "–";

/** j and k move a mark over the rows, Enter opens the marked row, x selects it. */
function useRowKeys({ count, current, setCurrent, body }) {
  useEffect(() => {
    const press = (event) => {
      if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || inField(event.target) || document.querySelector("dialog[open]")) return;
      const row = () => body.current?.children[current];
      if (event.key === "j" || event.key === "k") {
        const next = Math.max(0, Math.min(count - 1, current + (event.key === "j" ? 1 : -1)));
        setCurrent(next);
        const target = body.current?.children[next];
        target?.scrollIntoView({ block: "nearest" });
        (target?.querySelector("a.row-link") ?? target?.querySelector("a, button"))?.focus();
      } else if (event.key === "x" && row()) {
        row().querySelector("input[type=checkbox]")?.click();
      }
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [count, current]);
}

/** Return true if keys go into a field there. */
export const inField = (target) => target instanceof Element && Boolean(target.closest("input, textarea, select, [contenteditable]"));
