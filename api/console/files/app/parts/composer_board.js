// The state of the composer and the actions on it: selection, steps of undo, insertion, moves, keys and dragging.
import { plural, useEffect, useLayoutEffect, useRef, useState } from "../core/view.js";
import { EDITABLE } from "./composer_canvas.js";
import { follow } from "./composer_drag.js";
import { useImages } from "./composer_images.js";
import { blockOf, duplicated, fresh, imagesOf, inOrder, inserted, inWords, located, moved, nextStep, openedSteps, placeAfter, redone, refusedBlock, removed, stepped, themed, undone, updated } from "./composer_state.js";

/** Return the board of a composer: its state, and the functions that change it. */
export function useBoard({ doc, onDoc, fields, problem }) {
  const root = useRef(null);
  const [steps, setSteps] = useState(() => openedSteps(doc));
  const [selected, setSelected] = useState(null);
  const [editing, setEditing] = useState(false);
  const [said, say] = useState("");
  const [ghost, setGhost] = useState(null); // what is dragged: {x, y, name, drop, id}
  const [dialog, setDialog] = useState(null); // what ImageDialog gets
  const wanted = useRef(null); // the block that gets the focus after the next drawing
  const { images, learn } = useImages(imagesOf(doc));
  useEffect(() => { if (doc !== steps.doc) setSteps(openedSteps(doc)); }, [doc]); // another version was opened
  useLayoutEffect(() => {
    if (wanted.current === null) return;
    root.current.querySelector(`[data-block="${CSS.escape(wanted.current)}"]`)?.focus();
    wanted.current = null;
  });
  const select = (id, { edit = false, focus = false } = {}) => {
    setSelected(id);
    setEditing(edit);
    if (focus && !edit) wanted.current = id;
  };
  const show = (next) => {
    setSteps(next);
    onDoc(next.doc);
  };
  const apply = (next, { key = null, say: words = null } = {}) => {
    show(nextStep(steps, next, key, Date.now()));
    if (words) say(words);
  };
  const drawn = { root, doc, steps, selected, editing, said, ghost, dialog, fields, images, drop: ghost?.drop ?? null, dragged: ghost?.id ?? null, reached: selected ?? doc.blocks[0]?.id ?? null, wrong: refusedBlock(doc, problem) };
  const board = { ...drawn, say, select, apply, show, learn, setGhost, setDialog };
  for (const actions of [changes, insertions, pictures, moves, keys, dragging]) Object.assign(board, actions(board));
  return board;
}

/** Undo, and changes of the content of a block. */
function changes(board) {
  const { doc, steps, selected, say, show, select, apply } = board;
  const turn = (next, none, words) => {
    if (next === steps) return say(none);
    show(next);
    if (selected !== null && !blockOf(next.doc, selected)) select(null);
    return say(words);
  };
  return {
    undo: () => turn(undone(steps), "Nothing to undo", "Undone"),
    redo: () => turn(redone(steps), "Nothing to redo", "Redone"),
    change: (id, fields, key) => apply(updated(doc, id, fields), { key }),
    leave: (id) => select(id, { focus: true }),
  };
}

/** New blocks. */
function insertions(board) {
  const { doc, selected, apply, select } = board;
  const place = (block, where) => {
    apply(inserted(doc, block, where), { say: `${inWords(block)} added` });
    select(block.id, { edit: EDITABLE.has(block.type), focus: true });
  };
  const add = (type, where) => (type === "image" ? board.insertImage(where) : place(fresh(doc, type), where));
  return { place, add, addKind: (type) => add(type, placeAfter(doc, selected, type)) };
}

/** Images of blocks and the logo: each is chosen in a dialog. */
function pictures(board) {
  const { doc, images, learn, apply, setDialog } = board;
  const ask = (question, onChoose) => setDialog({ ...question, onChoose: (image, alt) => { learn(image); setDialog(null); onChoose(image, alt); } });
  const setLogo = (image) => {
    learn(image);
    apply(themed(doc, { logo: image.id }), { say: "Logo set" });
  };
  return {
    insertImage: (where, file = null) => ask({ file }, (image, alt) => board.place(fresh(doc, "image", { image: image.id, alt }), where)),
    replaceImage: (block) => ask({ image: images[block.image] ?? null, alt: block.alt }, (image, alt) => apply(updated(doc, block.id, { image: image.id, alt, width: null }), { say: "Image replaced" })),
    chooseLogo: () => ask({ described: false }, setLogo),
    setLogo,
    closeDialog: () => setDialog(null),
  };
}

/** What moves, copies and removes blocks, by buttons and keys alike. */
function moves(board) {
  const { doc, apply, select, say } = board;
  const ids = inOrder(doc).map((entry) => entry.block.id);
  const tellMoved = (next, id) => {
    const { at, siblings, parent, column } = located(next, id);
    apply(next, { say: `Moved to position ${at + 1} of ${siblings}${parent === null ? "" : ` in column ${column + 1}`}` });
    select(id, { focus: true });
  };
  const remove = (id) => {
    const next = removed(doc, id);
    const at = ids.indexOf(id);
    const beside = [...ids.slice(at), ...ids.slice(0, at).reverse()].find((one) => blockOf(next, one)) ?? null;
    apply(next, { say: `${inWords(blockOf(doc, id))} deleted. ${plural(inOrder(next).length, "block")} left.` });
    select(beside, { focus: true });
  };
  const duplicate = (id) => {
    const [next, copy] = duplicated(doc, id);
    apply(next, { say: `${inWords(blockOf(next, copy))} duplicated` });
    select(copy, { focus: true });
  };
  const step = (id, direction) => {
    const next = stepped(doc, id, direction);
    if (next === doc) say(direction < 0 ? "It is the first block" : "It is the last block");
    else tellMoved(next, id);
  };
  const walk = (to) => { if (to) select(to, { focus: true }); };
  return { remove, duplicate, step, tellMoved, walk, ids };
}

/** The keys on a block, and those of undo anywhere in the composer. */
function keys(board) {
  const { doc, root, ids, select, step, walk, remove, duplicate } = board;
  const edit = (id) => {
    select(id, { edit: EDITABLE.has(blockOf(doc, id).type) });
    if (!EDITABLE.has(blockOf(doc, id).type)) requestAnimationFrame(() => root.current?.querySelector("[data-settings] :is(input, textarea, select), [data-settings] button")?.focus()); // once the panel is drawn
  };
  const press = (event, { id }) => {
    const at = ids.indexOf(id);
    const actions = {
      ArrowUp: () => (event.altKey ? step(id, -1) : walk(ids[at - 1])),
      ArrowDown: () => (event.altKey ? step(id, 1) : walk(ids[at + 1])),
      Home: () => walk(ids[0]),
      End: () => walk(ids.at(-1)),
      Enter: () => edit(id),
      Delete: () => remove(id),
      Backspace: () => remove(id),
      Escape: () => select(null),
    };
    const copies = event.key.toLowerCase() === "d" && (event.ctrlKey || event.metaKey);
    handle(event, copies ? () => duplicate(id) : actions[event.key]);
  };
  const shortcut = (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.target.closest("dialog")) return;
    handle(event, { z: event.shiftKey ? board.redo : board.undo, y: board.redo }[event.key.toLowerCase()]);
  };
  return { press, shortcut };
}

function handle(event, action) {
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  action();
}

/** Dragging blocks of the canvas and kinds of the palette. */
function dragging(board) {
  const { doc, setGhost } = board;
  const drag = (event, { id = null, type, name }) => follow(event, {
    type,
    id,
    onMove: (point, drop) => setGhost({ ...point, name, drop, id }),
    onEnd: (drop) => {
      setGhost(null);
      if (!drop) return;
      if (id === null) board.add(type, drop);
      else board.tellMoved(moved(doc, id, drop), id);
    },
  });
  return { drag };
}
