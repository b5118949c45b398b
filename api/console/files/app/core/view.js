// The view library (Preact, hooks, signals, htm) under one name, and the formats of values that every page shows.
import { computed, h, htm, signal } from "../../vendor/preact.mjs";

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
const DEVICE_ZONE = new Intl.DateTimeFormat().resolvedOptions().timeZone;

/** The IANA name of the time zone of all times that are shown and entered: the profile's, else that of the device. */
export const zone = signal(DEVICE_ZONE);

/** Show times in the zone `name`; null, or a zone that the browser does not know, means that of the device. */
export function setZone(name) {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name ?? DEVICE_ZONE });
    zone.value = name ?? DEVICE_ZONE;
  } catch {
    zone.value = DEVICE_ZONE;
  }
}

const formats = computed(() => {
  const format = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: zone.value, ...options });
  return {
    clock: format({ hour: "2-digit", minute: "2-digit", second: "2-digit" }),
    minute: format({ hour: "2-digit", minute: "2-digit" }),
    weekday: format({ weekday: "short" }),
    shortDay: format({ day: "numeric", month: "short" }),
    longDay: format({ day: "numeric", month: "short", year: "numeric" }),
    parts: format({ hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" }),
  };
});

/** Return an integer with separators: 12,345. */
export const number = (value) => (value == null ? "–" : integer.format(value));

/** Return a short form of a large integer: 12.3K. */
export const shortNumber = (value) => (value == null ? "–" : value < 10_000 ? integer.format(value) : compact.format(value));

/** Return a fraction (0 to 1) as a percentage with `digits` decimals. */
export function percent(fraction, digits = 1) {
  return fraction == null ? "–" : `${(fraction * 100).toFixed(digits)}%`;
}

/** Return a fraction as a percentage with up to two decimals, none of them a trailing zero: 1%, 6.25%. */
export const shortPercent = (fraction) => `${Number((fraction * 100).toFixed(2))}%`;

/** Return an address of the web without its scheme and query, its path shortened in the middle: shop.example.com/…/orders. */
export function shortUrl(url, limit = 44) {
  const bare = url.replace(/^https?:\/\//, "").replace(/[?#].*$/, "");
  const end = bare.length - bare.lastIndexOf("/");
  if (bare.length <= limit) return bare;
  const [host] = bare.split("/");
  const last = end < limit - host.length - 2 ? bare.slice(-end) : bare.slice(-12);
  return host.length > limit - 8 ? cut(bare, limit) : `${host}/…${last}`;
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
  if (size < 10_000) return past < -2000 ? "in a moment" : "just now"; // clocks differ a little
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
  const { shortDay, longDay } = formats.value;
  return (localTime(iso).slice(0, 4) === localTime(now).slice(0, 4) ? shortDay : longDay).format(new Date(iso));
}

/** Return date and time to the second in the person's zone: 23 Nov, 14:05:09. */
export const dateTime = (iso) => `${date(iso)}, ${formats.value.clock.format(new Date(iso))}`;

/** Return the time of day in the person's zone, to the minute: 14:05. */
export const timeOfDay = (iso) => formats.value.minute.format(new Date(iso));

/** Return date and time to the minute in the person's zone: 23 Nov, 14:05. */
export const dateMinute = (iso) => `${date(iso)}, ${timeOfDay(iso)}`;

/** Return the day of the week in the person's zone: Mon. */
export const weekday = (iso) => formats.value.weekday.format(new Date(iso));

/** Return a time as the value of a field for local time, to the second, in the person's zone: 2026-11-23T14:05:09. */
export function localTime(iso) {
  const found = Object.fromEntries(formats.value.parts.formatToParts(new Date(iso)).map(({ type, value }) => [type, value]));
  return `${found.year.padStart(4, "0")}-${found.month}-${found.day}T${found.hour}:${found.minute}:${found.second}`;
}

/**
 * Return the time in UTC of a local time or day ("2026-11-23T14:05", "2026-11-23") of the person's zone, null for other
 * texts. Of a time that occurs twice the first counts; one that a clock change skips is as much later.
 */
export function instant(local) {
  const wanted = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?)?$/.test(local ?? "") ? Date.parse(local.length > 10 ? `${local}Z` : local) : NaN;
  if (Number.isNaN(wanted)) return null;
  const shown = (at) => Date.parse(`${localTime(at)}Z`);
  const [before, after] = [wanted - DAY, wanted + DAY].map((near) => wanted - (shown(near) - near)); // by the offsets on both sides of a change
  return new Date(shown(before) !== wanted && shown(after) === wanted ? after : before).toISOString();
}

/** Return the beginning in UTC of a day of the person's zone ("2026-11-23"), or of the one `later` days after it. */
export function startOfDay(day, later = 0) {
  const at = /^\d{4}-\d\d-\d\d$/.test(day ?? "") ? Date.parse(day) : NaN;
  return Number.isNaN(at) ? null : instant(new Date(at + later * DAY).toISOString().slice(0, 10));
}

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
