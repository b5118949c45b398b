// Plots over time: uPlot on a canvas, a legend, and a table of the same figures with CSV.
import uPlot from "../../vendor/uplot.mjs";
import { saveFile } from "../core/api.js";
import { theme } from "../core/shell.js";
import { Button, Segments } from "../core/ui.js";
import { date, html, number, shortNumber, useEffect, useRef, useState } from "../core/view.js";
import { csvText } from "./csv_text.js";

const STYLES = new URL("../../vendor/uplot.css", import.meta.url).href;
if (!document.querySelector(`link[href="${STYLES}"]`)) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = STYLES;
  document.head.append(link);
}

/**
 * A plot of `series` [{label, colour (a token such as "good"), values}] over `times` (ISO texts).
 *
 * `format` writes a value; `bars` draws bars instead of lines. The table holds the same figures.
 */
export function Plot({ label, times, series, format = number, bars = false, height = 200, name = "figures" }) {
  const [view, setView] = useState("plot");
  const save = () => {
    const rows = times.map((at, place) => [at, ...series.map((one) => one.values[place])]);
    saveFile(new Blob([csvText([["time", ...series.map((one) => one.label)], ...rows])], { type: "text/csv" }), `${name}.csv`);
  };
  return html`<figure class="stack-tight" aria-label=${label}>
    <div class="row-wide">
      <ul class="row small">${series.map((one) => html`<li class="row"><span class="swatch" aria-hidden="true" style=${{ background: `var(--${one.colour})` }}></span>${one.label}</li>`)}</ul>
      <div class="row"><${Segments} label=${`${label}: view`} options=${[["plot", "Plot"], ["table", "Table"]]} value=${view} onValue=${setView} /><${Button} kind="quiet" icon="download" label=${`Save ${label} as CSV`} onClick=${save} /></div>
    </div>
    ${view === "plot" ? html`<${Canvas} ...${{ label, times, series, format, bars, height }} />` : html`<${Figures} ...${{ label, times, series, format }} />`}
  </figure>`;
}

function Figures({ label, times, series, format }) {
  return html`<div class="table-frame plot-table" tabindex="0" role="region" aria-label=${`${label}: table`}><table class="table">
    <thead><tr><th scope="col">Time</th>${series.map((one) => html`<th scope="col" class="end">${one.label}</th>`)}</tr></thead>
    <tbody>${times.map((at, place) => html`<tr><td class="numeric">${at.slice(0, 16).replace("T", " ")}</td>${series.map((one) => html`<td class="end">${one.values[place] == null ? "–" : format(one.values[place])}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function Canvas({ label, times, series, format, bars, height }) {
  const box = useRef(null);
  const [hover, setHover] = useState(null);
  const chosen = theme.value;
  useEffect(() => {
    const frame = box.current; // Preact empties the ref before the clean-up below ends the observer
    const draw = () => new uPlot(options(frame, { series, format, bars, height, onHover: setHover }), data(times, series), frame);
    let plot = draw();
    const resized = new ResizeObserver(() => plot.setSize({ width: frame.clientWidth, height }));
    resized.observe(frame);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => {
      plot.destroy();
      plot = draw();
    };
    scheme.addEventListener("change", redraw);
    return () => {
      scheme.removeEventListener("change", redraw);
      resized.disconnect();
      plot.destroy();
    };
  }, [JSON.stringify(times), JSON.stringify(series), chosen]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${`${label}; the table shows the figures`}></div>
    <p class="small soft plot-hover" aria-hidden="true">${hover === null ? " " : `${times[hover]?.slice(0, 16).replace("T", " ")}: ${series.map((one) => `${one.label} ${one.values[hover] == null ? "–" : format(one.values[hover])}`).join(", ")}`}</p>`;
}

const data = (times, series) => [times.map((at) => Date.parse(at) / 1000), ...series.map((one) => one.values)];

function options(box, { series, format, bars, height, onHover }) {
  const style = getComputedStyle(box);
  const colour = (token) => resolved(box, token);
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: `12px ${style.fontFamily}` };
  return {
    width: box.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    hooks: { setCursor: [(plot) => onHover(plot.cursor.idx ?? null)] },
    scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] } },
    axes: [{ ...axis, size: 30, values: (plot, ticks, _, __, step) => ticks.map((tick) => stamp(tick, step)) }, { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => (format === number ? shortNumber(tick) : format(tick))) }],
    series: [{}, ...series.map((one) => ({ label: one.label, stroke: colour(one.colour), width: 2, fill: bars ? colour(one.colour) : undefined, paths: bars ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined, points: { show: false } }))],
  };
}

/** Return the text of a tick of the time axis: the time of day where ticks are hours apart, else the date. */
function stamp(tick, stepS) {
  const at = new Date(tick * 1000);
  return stepS < 86_400 ? at.toTimeString().slice(0, 5) : date(at.toISOString());
}

/** Return the colour that a token has now, as the canvas needs it. */
function resolved(box, token) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${token})`;
  box.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
