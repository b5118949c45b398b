// The view library (Preact, hooks, signals, htm) under one name, and the formats of values that every page shows.
import { h, htm } from "../../vendor/preact.mjs";

export { h, render, Fragment, createContext, createPortal } from "../../vendor/preact.mjs";
export {
  useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useId, useReducer,
} from "../../vendor/preact.mjs";
export { signal, computed, effect, batch, useSignal, useComputed, useSignalEffect } from "../../vendor/preact.mjs";

export const html = htm.bind(h);

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const integer = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const shortDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const longDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

/** Return an integer with separators: 12,345. */
export const number = (value) => (value == null ? "–" : integer.format(value));

/** Return a short form of a large integer: 12.3K. */
export const shortNumber = (value) => (value == null ? "–" : value < 10_000 ? integer.format(value) : compact.format(value));

/** Return a fraction (0 to 1) as a percentage with `digits` decimals. */
export function percent(fraction, digits = 1) {
  return fraction == null ? "–" : `${(fraction * 100).toFixed(digits)}%`;
}

/** Return a size in octets in a readable unit: 1.4 MB. */
export function bytes(size) {
  if (size == null) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  let value = size;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

/** Return a duration in milliseconds in a readable unit: 340 ms, 2.1 s, 3 min 20 s, 2 h 5 min. */
export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.round(ms / 1000)} s`;
  if (ms < HOUR) return inTwo(ms, MINUTE, "min", 1000, "s");
  if (ms < DAY) return inTwo(ms, HOUR, "h", MINUTE, "min");
  return inTwo(ms, DAY, "d", HOUR, "h");
}

function inTwo(ms, large, largeName, small, smallName) {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** Return an amount in minor units with its currency: €12.00. */
export function money(minor, currency) {
  if (minor == null) return "–";
  const format = new Intl.NumberFormat("en", { style: "currency", currency });
  return format.format(minor / 10 ** format.resolvedOptions().maximumFractionDigits);
}

let aheadMs = 0; // local mode can move the clock of the service ahead of this computer's

/** Note by how many milliseconds the clock of the service is ahead. */
export const setAhead = (ms) => { aheadMs = ms; };

/** Return the present time of the service, in milliseconds. */
export const serviceNow = () => Date.now() + aheadMs;

/** Return how long ago (or ahead) a time is, in words: "just now", "4 min ago", "in 2 h"; beyond a week the date. */
export function ago(iso, now = serviceNow()) {
  const past = now - Date.parse(iso);
  const size = Math.abs(past);
  if (size < 10_000) return "just now";
  const text =
    size < MINUTE ? `${Math.round(size / 1000)} s`
    : size < HOUR ? `${Math.floor(size / MINUTE)} min`
    : size < DAY ? `${Math.floor(size / HOUR)} h`
    : size < 7 * DAY ? `${Math.floor(size / DAY)} d`
    : null;
  if (text === null) return date(iso, now);
  return past >= 0 ? `${text} ago` : `in ${text}`;
}

/** Return the date in the person's zone; the year only if it is another one. */
export function date(iso, now = serviceNow()) {
  const at = new Date(iso);
  return at.getFullYear() === new Date(now).getFullYear() ? shortDay.format(at) : longDay.format(at);
}

/** Return date and time to the second in the person's zone: 23 Nov, 14:05:09. */
export const dateTime = (iso) => `${date(iso)}, ${clock.format(new Date(iso))}`;

/** Return the time in UTC to the millisecond: 2026-11-23 13:05:09.123 UTC. */
export const utc = (iso) => new Date(iso).toISOString().replace("T", " ").replace("Z", " UTC");

/** Join the class names that are not false. */
export const classes = (...names) => names.filter(Boolean).join(" ");

/** Return `text` cut to `limit` characters, with an ellipsis if it was longer. */
export const cut = (text, limit) => (text.length > limit ? `${text.slice(0, limit - 1)}…` : text);

/** Return a text of a stranger without the characters that turn the direction of writing: "exe.gpj" must not read as a picture. */
export const undirected = (text) => text?.replace(/[\u202a-\u202e\u2066-\u2069]/g, "");

/** Return "1 message", "2 messages". */
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
