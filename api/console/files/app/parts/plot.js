// Plots of counts by day or hour: stacked bars, a small plot of rates below with their limits, and a table of the same
// figures with CSV. All numbers stand at the places of their buckets, so that days of 23 or 25 hours look like others.
import uPlot from "../../vendor/uplot.mjs";
import { saveFile, useCall } from "../core/api.js";
import { theme } from "../core/shell.js";
import { Button, Segments } from "../core/ui.js";
import { classes, html, localTime, number, percent, shortNumber, useEffect, useId, useRef, useState, zone } from "../core/view.js";
import { csvText } from "./csv_text.js";
import { fillOf, resolved } from "./plot_fills.js";
import { everyNth, longName, ticks } from "./plot_times.js";

const STYLES = new URL("../../vendor/uplot.css", import.meta.url).href;
if (!document.querySelector(`link[href="${STYLES}"]`)) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = STYLES;
  document.head.append(link);
}

const HEIGHT = 168;
const RATES_HEIGHT = 96;
const EDGE = 48; // the width of an axis, on both sides, so that the two plots stand below each other
const STATUSES = [["Delivered", "good", "delivered"], ["Bounced", "bad", "bounced"], ["Failed", "accent", "failed"], ["Complained", "warn", "complained"]];
const RATES = [["Bounce rate", "bad", "bounceRate", "bounce_rate"], ["Complaint rate", "warn", "complaintRate", "complaint_rate"]];

/** The plot of messages by status and of their rates; `rows` are those of GET /v1/stats/messages, by `bucket`. */
export function MessagePlot({ rows, bucket = "day", name = "messages" }) {
  const rules = useCall("GET /v1/alerts/rules", { quiet: true });
  const limitOf = (kind) => (rules.data?.data ?? []).find((one) => one.kind === kind && one.enabled)?.threshold ?? null;
  const values = (field) => rows.map((row) => row[field]);
  return html`<${Plot} name=${name} label=${bucket === "hour" ? "Messages by hour" : "Messages by day"} times=${rows.map((row) => (bucket === "hour" ? row.startsAt : row.date))}
    series=${STATUSES.map(([label, colour, field]) => ({ label, colour, values: values(field) }))}
    rates=${RATES.map(([label, colour, field, kind]) => ({ label, colour, values: values(field), limit: limitOf(kind) }))} />`;
}

/**
 * A plot of `series` [{label, colour (a token such as "good"), values}], stacked, over `times`: days ("2026-11-29") or
 * the beginnings of hours (ISO). `rates` [{label, colour, values (fractions, null: unknown), limit}], at most two, get a
 * plot of their own, each with its axis and its limit as a line.
 */
export function Plot({ label, times, series, rates = [], name = "figures" }) {
  const [view, setView] = useState("plot");
  const [hover, setHover] = useState(null);
  zone.value; // drawn anew when the zone changes
  const save = () => {
    const all = [...series, ...rates];
    const rows = times.map((at, place) => [at, ...all.map((one) => one.values[place])]);
    saveFile(new Blob([csvText([["time", ...all.map((one) => one.label)], ...rows])], { type: "text/csv" }), `${name}.csv`);
  };
  const limits = rates.filter((one) => one.limit != null);
  return html`<figure class="stack-tight" aria-label=${label}>
    <div class="row-wide">
      <ul class="row small">${series.map((one, at) => html`<li class="row" key=${one.label}><span class=${classes("swatch", fillOf(at))} aria-hidden="true" style=${{ color: `var(--${one.colour})` }}></span>${one.label}</li>`)}</ul>
      <div class="row"><${Segments} label=${`${label}: view`} options=${[["plot", "Plot"], ["table", "Table"]]} value=${view} onValue=${setView} /><${Button} kind="quiet" icon="download" label=${`Save ${label} as CSV`} onClick=${save} /></div>
    </div>
    ${view === "table" ? html`<${Figures} ...${{ label, times, series, rates }} />` : html`<${Canvases} ...${{ label, times, series, rates, onHover: setHover }} />
    <p class="small soft plot-hover" aria-hidden="true">${hover === null || !times[hover] ? " " : `${longName(times[hover])}: ${[...series.map((one) => `${one.label} ${number(one.values[hover])}`), ...rates.map((one) => `${one.label} ${rateText(one.values[hover])}`)].join(", ")}`}</p>
    ${limits.length > 0 && html`<p class="small soft">Dotted lines: ${limits.map((one) => `${one.label.toLowerCase()} of ${rateText(one.limit)}`).join(", ")}, where your alerts fire.</p>`}`}
  </figure>`;
}

const rateText = (value) => percent(value, value != null && value < 0.01 ? 2 : 1);

function Figures({ label, times, series, rates }) {
  const cells = (list, place, text) => list.map((one) => html`<td class="end">${text(one.values[place])}</td>`);
  return html`<div class="table-frame plot-table" tabindex="0" role="region" aria-label=${`${label}: table`}><table class="table">
    <thead><tr><th scope="col">${times[0]?.length > 10 ? "Hour" : "Day"}</th>${[...series, ...rates].map((one) => html`<th scope="col" class="end">${one.label}</th>`)}</tr></thead>
    <tbody>${times.map((at, place) => html`<tr><td class="numeric">${at.length > 10 ? localTime(at).slice(0, 16).replace("T", " ") : longName(at)}</td>${cells(series, place, number)}${cells(rates, place, rateText)}</tr>`)}</tbody>
  </table></div>`;
}

/** Both plots with one crosshair. */
function Canvases({ label, times, series, rates, onHover }) {
  const key = useId();
  const sums = series.map((one) => `${one.label} ${number(one.values.reduce((sum, value) => sum + (value ?? 0), 0))}`);
  const known = { key, times, onHover };
  return html`<${Canvas} label=${`${label}: ${sums.join(", ")} in all; the table shows each figure`} height=${HEIGHT} facts=${{ ...known, series, twoAxes: rates.length > 1 }} optionsOf=${barOptions} />
    ${rates.length > 0 && html`<ul class="row small">${rates.map((one, at) => html`<li class="row" key=${one.label}><span class=${classes("swatch-line", at && "dashed")} aria-hidden="true" style=${{ color: `var(--${one.colour})` }}></span><span>${one.label}${rates.length > 1 ? html`<span class="soft">, ${at ? "right" : "left"} scale</span>` : ""}</span></li>`)}</ul>
    <${Canvas} label=${`${rates.map((one) => one.label).join(", ")}; the table shows each figure`} height=${RATES_HEIGHT} facts=${{ ...known, rates }} optionsOf=${rateOptions} />`}`;
}

/** A canvas that follows the width of its box, the theme and the figures. */
function Canvas({ label, height, facts, optionsOf }) {
  const box = useRef(null);
  useEffect(() => {
    const frame = box.current; // Preact empties the ref before the clean-up below ends the observer
    const draw = () => {
      const { data, ...options } = optionsOf(frame, facts);
      return new uPlot({ width: frame.clientWidth, height, ...options }, data, frame);
    };
    let plot = draw();
    const resized = new ResizeObserver(() => plot.setSize({ width: frame.clientWidth, height }));
    resized.observe(frame);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => {
      plot.destroy();
      plot = draw();
    };
    scheme.addEventListener("change", redraw);
    document.fonts.addEventListener("loadingdone", redraw); // the labels were drawn in the font before
    return () => {
      scheme.removeEventListener("change", redraw);
      document.fonts.removeEventListener("loadingdone", redraw);
      resized.disconnect();
      plot.destroy();
    };
  }, [JSON.stringify(facts), theme.value, zone.value]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${label} style=${{ minHeight: `${height}px` }}></div>`;
}

/** Return what both plots share: the places on the time axis, the crosshair, the look of the axes. */
function common(box, { key, times, onHover }) {
  const style = getComputedStyle(box);
  const axis = { stroke: resolved(box, "soft"), grid: { stroke: resolved(box, "line"), width: 1 }, ticks: { show: false }, font: `12px ${style.fontFamily}`, size: EDGE };
  const places = (plot) => everyNth(times, plot.width - 2 * EDGE);
  return {
    axis,
    places,
    options: {
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 }, sync: { key } },
      hooks: { setCursor: [(plot) => onHover(plot.cursor.idx ?? null)] },
    },
    x: { time: false, range: () => [-0.5, times.length - 0.5] },
  };
}

function barOptions(box, facts) {
  const { axis, places, options, x } = common(box, facts);
  const { times, series, twoAxes } = facts;
  // The bar of a series stands on the sums of those before it: the largest sum is drawn first, behind the others.
  const sums = series.map((_, upto) => times.map((_, place) => series.slice(0, upto + 1).reduce((sum, one) => sum + (one.values[place] ?? 0), 0)));
  const bars = uPlot.paths.bars({ size: [0.7, 36] });
  return {
    ...options,
    cursor: { ...options.cursor, points: { show: false } }, // they would mark sums
    padding: [8, twoAxes ? EDGE : 8, 0, 0],
    data: [times.map((_, place) => place), ...sums.toReversed()],
    scales: { x, y: { range: (_, __, high) => [0, high > 0 ? high * 1.08 : 4] } },
    axes: [
      { ...axis, size: 40, grid: { show: false }, splits: places, values: (_, found) => ticks(times, found) },
      { ...axis, incrs: [1, 2, 5].flatMap((one) => [one, one * 10, one * 100]).concat([1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7]).sort((a, b) => a - b), values: (_, found) => found.map(shortNumber) },
    ],
    series: [{}, ...series.map((one, at) => ({ label: one.label, width: 0, fill: fillOf(at, resolved(box, one.colour), resolved(box, "sheet")), stroke: resolved(box, one.colour), paths: bars, points: { show: false } })).toReversed()],
  };
}

function rateOptions(box, facts) {
  const { axis, places, options, x } = common(box, facts);
  const { times, rates } = facts;
  const scale = (one) => ({ range: (_, __, high) => [0, Math.max((high ?? 0) * 1.1, (one.limit ?? 0) * 1.3, 0.001)] });
  const values = (_, found) => found.map((value) => `${Number((value * 100).toPrecision(2))}%`);
  const limits = (plot) => rates.forEach((one, at) => one.limit != null && drawLimit(plot, `rate${at}`, one.limit, resolved(box, one.colour), { text: `alert at ${rateText(one.limit)}`, isRight: at > 0, font: getComputedStyle(box).fontFamily }));
  return {
    ...options,
    padding: [8, rates.length > 1 ? 0 : 8, 0, 0],
    hooks: { ...options.hooks, draw: [limits] },
    data: [times.map((_, place) => place), ...rates.map((one) => one.values)],
    scales: { x, ...Object.fromEntries(rates.map((one, at) => [`rate${at}`, scale(one)])) },
    axes: [{ ...axis, size: 8, grid: { show: false }, splits: places, values: (_, found) => found.map(() => "") }, ...rates.map((_, at) => ({ ...axis, scale: `rate${at}`, side: at ? 1 : 3, grid: at ? { show: false } : axis.grid, space: 28, values }))],
    series: [{}, ...rates.map((one, at) => ({ label: one.label, scale: `rate${at}`, stroke: resolved(box, one.colour), width: 2, dash: at ? [6, 4] : undefined, points: { show: true, size: 5, fill: resolved(box, one.colour) } }))],
  };
}

/** Draw the limit of a rate as a dotted line over the whole width, with its text at the side of its axis. */
function drawLimit(plot, scale, limit, colour, { text, isRight, font }) {
  const { ctx, bbox } = plot;
  const y = Math.round(plot.valToPos(limit, scale, true)) + 0.5;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.setLineDash([]);
  ctx.fillStyle = colour;
  ctx.font = `${11 * devicePixelRatio}px ${font}`;
  ctx.textAlign = isRight ? "right" : "left";
  ctx.textBaseline = "bottom";
  ctx.fillText(text, isRight ? bbox.left + bbox.width : bbox.left, y - 2 * devicePixelRatio);
  ctx.restore();
}
