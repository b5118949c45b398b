// Fills of stacked bars. Each has a pattern of its own, so that bars can be told apart without colour.

const FILLS = ["solid", "hatch", "dots", "cross"];
const SIZE = 6;

/** Return the name of the pattern of series `at`; with its colours, the fill of a canvas. */
export function fillOf(at, colour, ground) {
  const name = FILLS[at % FILLS.length];
  if (colour === undefined) return name;
  if (name === "solid") return colour;
  const tile = document.createElement("canvas");
  const size = Math.round(SIZE * devicePixelRatio);
  tile.width = size;
  tile.height = size;
  const context = tile.getContext("2d");
  context.fillStyle = ground;
  context.fillRect(0, 0, size, size);
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = size / 3;
  if (name === "dots") context.fillRect(0, 0, size / 2, size / 2);
  else lines(context, size, name === "cross");
  return context.createPattern(tile, "repeat");
}

/** Draw the diagonal of the tile with its neighbours', so that the lines go on from tile to tile. */
function lines(context, size, crossed) {
  context.beginPath();
  for (const shift of [-size, 0, size]) {
    context.moveTo(shift - 1, size + 1);
    context.lineTo(shift + size + 1, -1);
    if (crossed) {
      context.moveTo(shift - 1, -1);
      context.lineTo(shift + size + 1, size + 1);
    }
  }
  context.stroke();
}

/** Return the colour that a token has now, as the canvas needs it. */
export function resolved(box, token) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${token})`;
  box.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
