// Dragging a block of the canvas, or a kind of block of the palette, with mouse, pen or finger.
const THRESHOLD_PX = 5; // a shorter way is a press
const EDGE_PX = 60; // near the upper and lower edge of the window, the page scrolls
const SCROLL_PX = 12;

/** Return the place below the point, for a block of `type` whose id is `id` (null: a new one), or null outside of the canvas. */
export function placeAt(x, y, type, id) {
  const under = document.elementFromPoint(x, y);
  let list = under?.closest("[data-list]") ?? under?.closest("[data-paper]")?.querySelector("[data-list]") ?? null;
  const climbs = () => list?.dataset.list && (type === "columns" || list.dataset.list.split(" ")[0] === id);
  while (climbs()) list = list.parentElement.closest("[data-list]");
  if (!list) return null;
  const [parent, column] = list.dataset.list ? list.dataset.list.split(" ") : [null, 0];
  const items = [...list.children].filter((one) => "item" in one.dataset);
  const before = items.filter((one) => {
    const { top, height } = one.getBoundingClientRect();
    return y > top + height / 2;
  });
  return { parent, column: Number(column), at: before.length };
}

/** Let the click of a release pass unseen: a drag that ends on the button that it began on is no press. */
function ignoreClick() {
  const stop = (event) => event.stopPropagation();
  addEventListener("click", stop, { capture: true, once: true });
  setTimeout(() => removeEventListener("click", stop, true)); // the click, if any, comes before the next task
}

/**
 * Follow the pointer of `event` until it is released: `onMove(point, place)` after each move beyond the threshold, and
 * `onEnd(place)` once, with null if there was no drag, or it was taken back with Esc.
 */
export function follow(event, { type, id = null, onMove, onEnd }) {
  if (event.button !== 0) return;
  const from = { x: event.clientX, y: event.clientY };
  let point = null;
  let frame = 0;
  const end = (place) => {
    cancelAnimationFrame(frame);
    for (const [name, listener] of Object.entries(listeners)) removeEventListener(name, listener, true);
    if (point) ignoreClick();
    onEnd(point && place);
  };
  const scroll = () => {
    const step = point.y < EDGE_PX ? -SCROLL_PX : point.y > window.innerHeight - EDGE_PX ? SCROLL_PX : 0;
    if (step) window.scrollBy(0, step);
    frame = requestAnimationFrame(scroll);
  };
  const listeners = {
    pointermove: (move) => {
      if (!point && Math.hypot(move.clientX - from.x, move.clientY - from.y) < THRESHOLD_PX) return;
      const begins = !point;
      point = { x: move.clientX, y: move.clientY };
      if (begins) scroll();
      onMove(point, placeAt(point.x, point.y, type, id));
    },
    pointerup: (up) => end(placeAt(up.clientX, up.clientY, type, id)),
    pointercancel: () => end(null),
    keydown: (key) => {
      if (key.key !== "Escape") return;
      key.stopPropagation();
      end(null);
    },
  };
  for (const [name, listener] of Object.entries(listeners)) addEventListener(name, listener, true);
}
