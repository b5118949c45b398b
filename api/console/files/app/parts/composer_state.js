// The block document of the composer as a value: every change returns a new document. Pure functions, no views.
//
// A place is {parent, column, at}: position `at` in the root list (parent null) or in a column of the columns block
// with the id `parent`.

export const MAX_BLOCKS = 200; // nested ones included; the service refuses more
const MAX_STEPS = 200; // of undo
const JOINED_MS = 1500; // changes of one field within this time are one step of undo

/** The kinds of blocks: [type, name, icon, what it is for]. An image block is made with its image. */
export const KINDS = [
  ["heading", "Heading", "heading", "A title"],
  ["text", "Text", "type", "A paragraph"],
  ["button", "Button", "rectangle", "A link that stands out"],
  ["image", "Image", "image", "A picture with its description"],
  ["columns", "Columns", "columns-2", "Blocks side by side, below each other on phones"],
  ["list", "List", "list", "Points or numbers"],
  ["divider", "Divider", "minus", "A line between two parts"],
  ["spacer", "Space", "move-vertical", "Room between two parts"],
  ["footer", "Footer", "panel-bottom", "Address and unsubscribe link, in small text"],
];
const NAMES = Object.fromEntries(KINDS.map(([type, name]) => [type, name]));

const CONTENT = {
  heading: () => ({ text: "Heading", level: 1 }),
  text: () => ({ text: "Write your text here." }),
  button: () => ({ text: "Open", url: "https://example.com/" }),
  image: () => ({ alt: "" }),
  columns: () => ({ columns: [{ blocks: [] }, { blocks: [] }] }),
  list: () => ({ style: "bullet", items: ["First point", "Second point"] }),
  divider: () => ({}),
  spacer: () => ({ height: 24 }),
  footer: () => ({ text: "Your company, street and city" }),
};

/** Return a document without blocks. */
export const emptyDocument = () => ({ version: 1, theme: {}, blocks: [] });

/** Return all blocks in reading order: [{block, parent, column, at, siblings}]. */
export function inOrder(doc) {
  const listed = (blocks, parent, column) => blocks.flatMap((block, at) => [
    { block, parent, column, at, siblings: blocks.length },
    ...(block.type === "columns" ? block.columns.flatMap((one, place) => listed(one.blocks, block.id, place)) : []),
  ]);
  return listed(doc.blocks, null, 0);
}

/** Return the entry of `inOrder` for the block `id`, or null. */
export const located = (doc, id) => inOrder(doc).find((entry) => entry.block.id === id) ?? null;

/** Return the block `id`, or null. */
export const blockOf = (doc, id) => located(doc, id)?.block ?? null;

/** Return an id that no block of the document has; `more` are further ids that are taken. */
function freeId(doc, more = []) {
  const taken = new Set([...inOrder(doc).map((entry) => entry.block.id), ...more]);
  let number = taken.size + 1;
  while (taken.has(`b${number}`)) number += 1;
  return `b${number}`;
}

/** Return a new block of `type` with the content that a fresh one has. */
export const fresh = (doc, type, content = {}) => ({ id: freeId(doc), type, ...CONTENT[type](), ...content });

/** Return the document with `change(list)` in place of the list that `place` names. */
function withList(doc, { parent, column }, change) {
  if (parent === null) return { ...doc, blocks: change(doc.blocks) };
  const columnsOf = (block) => block.columns.map((one, at) => (at === column ? { ...one, blocks: change(one.blocks) } : one));
  return { ...doc, blocks: doc.blocks.map((block) => (block.id === parent ? { ...block, columns: columnsOf(block) } : block)) };
}

/** Return the document with `block` at `place`. */
export const inserted = (doc, block, place) => withList(doc, place, (list) => list.toSpliced(place.at, 0, block));

/** Return the document without the block `id`. */
export function removed(doc, id) {
  const found = located(doc, id);
  return found ? withList(doc, found, (list) => list.toSpliced(found.at, 1)) : doc;
}

/** Return the document with `changes` of the block `id`; a value of null takes the field out. */
export function updated(doc, id, changes) {
  const found = located(doc, id);
  if (!found) return doc;
  return withList(doc, found, (list) => list.with(found.at, without({ ...found.block, ...changes }, changes)));
}

/** Return the document with changes of its theme; a value of null takes it out. */
export const themed = (doc, changes) => ({ ...doc, theme: without({ ...doc.theme, ...changes }, changes) });

/** Return `record` without the fields that are null in `changes`. */
function without(record, changes) {
  return Object.fromEntries(Object.entries(record).filter(([name]) => changes[name] !== null));
}

/** Return a copy of the block with ids of its own, and so have the blocks in it. */
function copied(doc, block) {
  const taken = [];
  const renewed = (one) => {
    const id = freeId(doc, taken);
    taken.push(id);
    return { ...one, id, ...(one.columns && { columns: one.columns.map((column) => ({ ...column, blocks: column.blocks.map(renewed) })) }) };
  };
  return renewed(structuredClone(block));
}

/** Return [document, id of the copy] with a copy of the block `id` behind it. */
export function duplicated(doc, id) {
  const found = located(doc, id);
  if (!found) return [doc, id];
  const copy = copied(doc, found.block);
  return [inserted(doc, copy, { ...found, at: found.at + 1 }), copy.id];
}

/** Return every place where a block of `type` may be, in reading order. Columns are not put into columns. */
export function places(doc, type) {
  const all = [];
  doc.blocks.forEach((block, at) => {
    all.push({ parent: null, column: 0, at });
    if (type === "columns" || block.type !== "columns") return;
    block.columns.forEach((one, column) => {
      for (let inside = 0; inside <= one.blocks.length; inside += 1) all.push({ parent: block.id, column, at: inside });
    });
  });
  return [...all, { parent: null, column: 0, at: doc.blocks.length }];
}

const isSame = (one, other) => one.parent === other.parent && one.column === other.column && one.at === other.at;

/** Return the document with the block `id` one place earlier (-1) or later (1) in reading order, into and out of columns. */
export function stepped(doc, id, step) {
  const found = located(doc, id);
  if (!found) return doc;
  const rest = removed(doc, id);
  const all = places(rest, found.block.type);
  const to = all[all.findIndex((place) => isSame(place, found)) + step];
  return to ? inserted(rest, found.block, to) : doc;
}

/** Return the document with the block `id` at `place` of the document as it is, with the block still in it. */
export function moved(doc, id, place) {
  const found = located(doc, id);
  if (!found || place.parent === id || (found.block.type === "columns" && place.parent !== null)) return doc;
  const shifts = found.parent === place.parent && found.column === place.column && found.at < place.at;
  return inserted(removed(doc, id), found.block, { ...place, at: place.at - (shifts ? 1 : 0) });
}

/** Return the place behind the block `id`, or the end of the document; a block of columns goes behind the columns that `id` is in. */
export function placeAfter(doc, id, type) {
  const found = id === null ? null : located(doc, id);
  if (!found) return { parent: null, column: 0, at: doc.blocks.length };
  if (found.parent !== null && type === "columns") return placeAfter(doc, found.parent, type);
  return { parent: found.parent, column: found.column, at: found.at + 1 };
}

/** Return the document with `count` columns in the block `id`; blocks of a column that goes join the last one. */
export function withColumns(doc, id, count) {
  const { columns } = blockOf(doc, id);
  const kept = columns.slice(0, count).map((one) => ({ ...one }));
  const rest = columns.slice(count).flatMap((one) => one.blocks);
  while (kept.length < count) kept.push({ blocks: [] });
  kept[count - 1] = { ...kept[count - 1], blocks: [...kept[count - 1].blocks, ...rest] };
  return updated(doc, id, { columns: kept });
}

/** Return a block in words, for people who don't see it: "Heading: Welcome". */
export function inWords(block) {
  const text = block.text ?? block.alt ?? block.items?.join(", ") ?? "";
  return text ? `${NAMES[block.type]}: ${text.slice(0, 60)}` : NAMES[block.type];
}

/** Return {id, field, message} of the block that a refusal of the service is about, or null: its field is "blocks.blocks[3].url". */
export function refusedBlock(doc, problem) {
  const field = problem?.details?.field ?? "";
  let list = doc.blocks;
  let block = null;
  let rest = field.replace(/^blocks\./, "");
  for (let step; (step = /^(?:columns\[(\d+)\]\.)?blocks\[(\d+)\]\.?/.exec(rest)); rest = rest.slice(step[0].length)) {
    block = (step[1] ? block?.columns?.[step[1]]?.blocks : list)?.[step[2]] ?? null;
  }
  return block && { id: block.id, field: rest, message: problem.message };
}

/** Return the ids of all images that the document uses. */
export const imagesOf = (doc) => [...new Set([doc.theme?.logo, ...inOrder(doc).map((entry) => entry.block.image)].filter(Boolean))];

/** Return the steps of undo of a document that was just opened. */
export const openedSteps = (doc) => ({ past: [], doc, future: [], key: null, at: 0 });

/** Return the steps after a change at the time `at`; changes with one `key` shortly after each other are one step. */
export function nextStep(steps, doc, key, at) {
  if (doc === steps.doc) return steps;
  const joins = key !== null && key === steps.key && at - steps.at < JOINED_MS;
  return { past: joins ? steps.past : [...steps.past, steps.doc].slice(-MAX_STEPS), doc, future: [], key, at };
}

/** Return the steps with the last change taken back; the same steps if there is none. */
export const undone = (steps) => (steps.past.length ? { past: steps.past.slice(0, -1), doc: steps.past.at(-1), future: [steps.doc, ...steps.future], key: null, at: 0 } : steps);

/** Return the steps with the change made again that was taken back last; the same steps if there is none. */
export const redone = (steps) => (steps.future.length ? { past: [...steps.past, steps.doc], doc: steps.future[0], future: steps.future.slice(1), key: null, at: 0 } : steps);
