"""The document of the composer and its undo, as pure functions in the page."""

from typing import Any

from api.console import assets
from tests.harness.browser import ConsolePage


async def state(page: ConsolePage, script: str) -> Any:
    """Return what a script makes of the composer's modules `state` and `markup`."""
    await page.go("/components")
    base = f"/console-files/{assets.files().version}/app/parts/composer_"
    return await page.page.evaluate(
        f"async () => {{ const state = await import('{base}state.js'); const markup = await import('{base}markup.js');"
        f" {script} }}"
    )


async def test_a_block_moves_through_columns_in_reading_order(page: ConsolePage) -> None:
    found = await state(
        page,
        """
        let doc = { version: 1, blocks: [{ id: "a", type: "text", text: "" },
          { id: "c", type: "columns", columns: [{ blocks: [] }, { blocks: [{ id: "x", type: "divider" }] }] }] };
        const seen = [];
        for (let at = 0; at < 7; at += 1) {
          const { parent, column, at: place } = state.located(doc, "a");
          seen.push(`${parent ?? "-"}${column}${place}`);
          doc = state.stepped(doc, "a", 1);
        }
        const columns = state.stepped(doc, "c", -1);
        return [seen, columns.blocks[0].id, state.stepped(columns, "c", -1) === columns];
        """,
    )
    assert found == [["-00", "c00", "c10", "c11", "-01", "-01", "-01"], "c", True]


async def test_changes_of_one_field_are_one_step_of_undo(page: ConsolePage) -> None:
    found = await state(
        page,
        """
        const start = { blocks: [] };
        let steps = state.openedSteps(start);
        for (const [at, key] of [[0, "text a"], [500, "text a"], [900, "text b"], [5000, "text b"], [5100, null]]) {
          steps = state.nextStep(steps, { blocks: [], at }, key, at);
        }
        const counts = [steps.past.length];
        while (steps.past.length) steps = state.undone(steps);
        return [...counts, steps.doc === start, state.undone(steps) === steps, steps.future.length];
        """,
    )
    assert found == [4, True, True, 4]


async def test_ids_stay_unique_when_blocks_with_columns_are_copied(page: ConsolePage) -> None:
    found = await state(
        page,
        """
        const doc = { version: 1, blocks: [{ id: "b2", type: "columns", columns: [
          { blocks: [{ id: "b1", type: "text", text: "one" }] }, { blocks: [{ id: "b9", type: "divider" }] }] }] };
        const [next] = state.duplicated(doc, "b2");
        const ids = state.inOrder(next).map((entry) => entry.block.id);
        return [ids.length, new Set(ids).size, state.blockOf(doc, "b1").text];
        """,
    )
    assert found == [6, 6, "one"]


async def test_marks_nest_and_escapes_stay_plain(page: ConsolePage) -> None:
    found = await state(
        page,
        r"""
        const flat = (pieces) => pieces.map((one) => one.pieces ? [one.kind, ...flat(one.pieces)] : one.text);
        return [flat(markup.parsed("a **b *c* d** [e](https://x.test/(1)) {{f}} \\*g\\* *h")),
          markup.marked("one two", 4, 7, "**"), markup.marked("one **two**", 6, 9, "**"),
          markup.withField("Hi {{na}}!", 7, "name"), markup.typedField("Hi {{ na", 8), markup.typedField("Hi na", 5)];
        """,
    )
    assert found[0] == ["a ", ["bold", "b ", ["italic", "c"], " d"], " ", ["link", "e"], " ", "{{f}}", " *g* *h"]
    assert found[1:] == [["one **two**", 6, 9], ["one two", 4, 7], ["Hi {{name}}!", 11], "na", None]
