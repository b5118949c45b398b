// The styles and the icons that only the composer needs, loaded with it. Shapes from Lucide 1.62.0 (ISC, LICENSE-lucide).
import ICONS from "../core/icons.js";

const path = (d) => ["path", { d }];
const box = (more) => ["rect", { width: "18", height: "18", x: "3", y: "3", rx: "2", ...more }];
const dot = (cx, cy) => ["circle", { cx, cy, r: "1" }];

Object.assign(ICONS, {
  "bold": [path("M6 12h9a4 4 0 0 1 0 8H7a1 1 0 0 1-1-1V5a1 1 0 0 1 1-1h7a4 4 0 0 1 0 8")],
  "braces": [path("M8 3H7a2 2 0 0 0-2 2v5a2 2 0 0 1-2 2 2 2 0 0 1 2 2v5c0 1.1.9 2 2 2h1"), path("M16 21h1a2 2 0 0 0 2-2v-5c0-1.1.9-2 2-2a2 2 0 0 1-2-2V5a2 2 0 0 0-2-2h-1")],
  "columns-2": [box(), path("M12 3v18")],
  "grip-vertical": ["5", "12", "19"].flatMap((cy) => [dot("9", cy), dot("15", cy)]),
  "heading": [path("M6 12h12"), path("M6 20V4"), path("M18 20V4")],
  "image": [box(), ["circle", { cx: "9", cy: "9", r: "2" }], path("m21 15-3.086-3.086a2 2 0 0 0-2.828 0L6 21")],
  "italic": [path("M19 4h-9"), path("M14 20H5"), path("M15 4 9 20")],
  "minus": [path("M5 12h14")],
  "move-vertical": [path("M12 2v20"), path("m8 18 4 4 4-4"), path("m8 6 4-4 4 4")],
  "panel-bottom": [box(), path("M3 15h18")],
  "rectangle": [box({ width: "20", height: "12", x: "2", y: "6" })],
  "redo-2": [path("m15 14 5-5-5-5"), path("M20 9H9.5A5.5 5.5 0 0 0 4 14.5A5.5 5.5 0 0 0 9.5 20H13")],
  "type": [path("M12 4v16"), path("M4 7V5a1 1 0 0 1 1-1h14a1 1 0 0 1 1 1v2"), path("M9 20h6")],
  "undo-2": [path("M9 14 4 9l5-5"), path("M4 9h10.5a5.5 5.5 0 0 1 5.5 5.5a5.5 5.5 0 0 1-5.5 5.5H11")],
});

const STYLES = new URL("./composer.css", import.meta.url).href;
if (!document.querySelector(`link[href="${STYLES}"]`)) document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: STYLES }));
