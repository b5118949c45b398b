// Runs in each page that `ops bench --console` measures: records of the browser, and what the bench asks for.
"use strict";

window.benchRecords = { longTasks: [], clicks: new Map() };

/** The milliseconds from the start of loading until the page has its heading. */
window.benchUsable = new Promise((done) => {
  new MutationObserver((_, observer) => {
    if (!document.querySelector("main h1")) return;
    observer.disconnect();
    done(performance.now());
  }).observe(document, { childList: true, subtree: true });
});

new PerformanceObserver((list) => {
  benchRecords.longTasks.push(...list.getEntries().map((one) => one.duration));
}).observe({ type: "longtask" });

// From the press to the next painted frame; the browser records those of 16 ms and longer. A click is several events
// (pointerdown, pointerup, click) of one interaction: the longest counts.
new PerformanceObserver((list) => {
  const { clicks } = benchRecords;
  for (const { interactionId: id, duration } of list.getEntries()) {
    if (id) clicks.set(id, Math.max(duration, clicks.get(id) ?? 0));
  }
}).observe({ type: "event", durationThreshold: 16 });

const benchScroller = () => document.querySelector("[data-scroller]") ?? document.scrollingElement;

/** Return the octets (compressed) of the page and the console's files, those of its typeface, and the number of scripts. */
window.benchSizes = function benchSizes() {
  const files = performance.getEntriesByType("resource").filter((one) => one.name.includes("/console-files/"));
  const faces = files.filter((one) => one.name.endsWith(".woff2"));
  const rest = files.filter((one) => !faces.includes(one));
  const sum = (entries) => entries.reduce((octets, one) => octets + one.encodedBodySize, 0);
  return {
    octets: sum([...performance.getEntriesByType("navigation"), ...rest]),
    faces: sum(faces),
    scripts: rest.filter((one) => one.name.endsWith("js")).length,
  };
};

/** Scroll to `steps` random places and return the milliseconds until each was painted. */
window.benchScroll = async function benchScroll(steps) {
  const box = benchScroller();
  const frames = [];
  for (let step = 0; step < steps; step += 1) {
    const began = performance.now();
    box.scrollTop = Math.random() * box.scrollHeight;
    await new Promise(requestAnimationFrame);
    frames.push(performance.now() - began);
  }
  return frames;
};

/** Scroll to the end, so that the list loads more rows, and return how many rows it has. */
window.benchToTheEnd = async function benchToTheEnd() {
  const box = benchScroller();
  box.scrollTop = box.scrollHeight;
  await new Promise((done) => setTimeout(done, 20));
  // The index of the head is 1; aria-rowcount is unknown (-1) until the last page was read.
  return Math.max(0, ...[...document.querySelectorAll("[aria-rowindex]")].map((row) => Number(row.getAttribute("aria-rowindex")) - 1));
};
