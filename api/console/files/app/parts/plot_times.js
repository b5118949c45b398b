// The time axis of plots: which buckets get a label, and its words. A bucket is a day ("2026-11-29") or the beginning of an hour (ISO).
import { date, dateTime, localTime, timeOfDay, weekday } from "../core/view.js";

const LABEL_WIDTH = 50; // pixels that "29 Nov" takes, with a gap
const DAY_STEPS = [1, 2, 7, 14, 28, 56, 112];
const HOUR_STEPS = [1, 2, 3, 6, 12, 24, 48, 168];
const DAY_MS = 86_400_000;

const isDay = (at) => at.length === 10;
const calendar = (options) => new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", ...options });
const DAY = calendar({ day: "numeric", month: "short" });
const WEEKDAY = calendar({ weekday: "short" });
const LONG_DAY = calendar({ weekday: "short", day: "numeric", month: "short", year: "numeric" });

/** Return the places of the buckets that get a label, so that the labels fit into `width` pixels. */
export function everyNth(times, width) {
  if (times.length === 0) return [];
  const steps = isDay(times[0]) ? DAY_STEPS : HOUR_STEPS;
  const step = steps.find((one) => (width / times.length) * one >= LABEL_WIDTH) ?? steps.at(-1);
  const chosen = times.map((_, place) => place).filter((place) => rankOf(times, place) % step === 0);
  return chosen.length > 1 || times.length === 1 ? chosen : [0, times.length - 1];
}

/** Return the number by which labels are spaced: from the newest day back, or from a Monday; of hours those of the day. */
function rankOf(times, place) {
  if (isDay(times[place])) return times.length > 31 ? Math.round(Date.parse(times[place]) / DAY_MS) + 3 : times.length - 1 - place;
  const [days, hours] = [Date.parse(localTime(times[place]).slice(0, 10)) / DAY_MS, Number(localTime(times[place]).slice(11, 13))];
  return days * 24 + hours;
}

/** Return the labels of the buckets at `places`: a day with its weekday below, an hour with its date where the day changes. */
export function ticks(times, places) {
  return places.map((place, at) => {
    const time = times[place];
    if (isDay(time)) return `${DAY.format(Date.parse(time))}\n${WEEKDAY.format(Date.parse(time))}`;
    const changes = at === 0 || date(time) !== date(times[places[at - 1]]);
    return changes ? `${timeOfDay(time)}\n${weekday(time)}, ${date(time)}` : timeOfDay(time);
  });
}

/** Return the name of a bucket in a sentence: "Sun, 29 Nov 2026", "29 Nov, 14:00". */
export const longName = (time) => (isDay(time) ? LONG_DAY.format(Date.parse(time)) : dateTime(time).slice(0, -3));
