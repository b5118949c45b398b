// The composer of emails: palette, canvas, settings, undo. It edits a block document; the service makes the HTML.
import "./composer_assets.js";
import { Button, Icon } from "../core/ui.js";
import { html } from "../core/view.js";
import { useBoard } from "./composer_board.js";
import { Canvas } from "./composer_canvas.js";
import { ImageDialog, pictureIn } from "./composer_images.js";
import { Settings } from "./composer_settings.js";
import { inOrder, KINDS, MAX_BLOCKS, placeAfter } from "./composer_state.js";

const HELP = "Arrow keys select a block, Enter edits it, Esc leaves the text, Alt+Up and Alt+Down move it, Ctrl+D copies and Delete removes it. Ctrl+Z undoes, Ctrl+Shift+Z redoes.";

/**
 * The composer of the document `doc`; `onDoc` gets each change. `fields` are the names of merge fields, `problem` is a
 * refusal of the service, which marks the block that it is about.
 */
export function Composer({ doc, onDoc, fields, problem = null }) {
  const board = useBoard({ doc, onDoc, fields, problem });
  const { root, said, dialog, ghost } = board;
  const take = (event, transfer) => {
    const picture = pictureIn(transfer);
    if (!picture || event.target.closest("dialog")) return;
    event.preventDefault();
    board.insertImage(placeAfter(board.doc, board.selected, "image"), picture);
  };
  const isFile = (event) => { if (event.dataTransfer?.types.includes("Files")) event.preventDefault(); };
  return html`<div class="cp" ref=${root} onKeyDown=${board.shortcut} onPaste=${(event) => take(event, event.clipboardData)} onDrop=${(event) => take(event, event.dataTransfer)} onDragOver=${isFile}>
    <${Palette} board=${board} />
    <div class="cp-middle"><${Canvas} board=${board} /><p class="soft small cp-help" id="cp-help">${HELP}</p></div>
    <${Settings} board=${board} />
    <div role="status" class="visually-hidden">${said}</div>
    ${ghost && html`<div class="cp-ghost" style=${{ left: `${ghost.x + 12}px`, top: `${ghost.y + 8}px` }}>${ghost.name}</div>`}
    ${dialog && html`<${ImageDialog} ...${dialog} onClose=${board.closeDialog} />`}
  </div>`;
}

/** The kinds of blocks to choose or drag, and undo. */
function Palette({ board }) {
  const full = inOrder(board.doc).length >= MAX_BLOCKS ? `An email has at most ${MAX_BLOCKS} blocks.` : null;
  return html`<div class="cp-palette" role="toolbar" aria-label="Blocks and undo">
    <div class="row cp-undo"><${Button} kind="quiet" icon="undo-2" label="Undo" disabled=${!board.steps.past.length} onClick=${board.undo} /><${Button} kind="quiet" icon="redo-2" label="Redo" disabled=${!board.steps.future.length} onClick=${board.redo} /></div>
    <ul>${KINDS.map(([type, name, icon, purpose]) => html`<li key=${type}><button type="button" class="cp-kind" title=${full ?? purpose} aria-disabled=${full ? "true" : undefined} onPointerDown=${(event) => { if (!full) board.drag(event, { type, name }); }} onClick=${() => { if (!full) board.addKind(type); }}><${Icon} name=${icon} />${name}</button></li>`)}</ul>
  </div>`;
}
