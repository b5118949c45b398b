"""Contacts, lists, segments and suppressions in the console, and the import of a CSV."""

import csv
import io
from datetime import timedelta

from playwright.async_api import FilePayload, expect

from engine.base import clock
from tests.harness.api import Api
from tests.harness.browser import ConsolePage, ConsoleUser

HOSTILE = "<script>alert(1)</script>"


def payload(text: str, encoding: str = "utf-8") -> FilePayload:
    """Return a file to choose."""
    return FilePayload(name="people.csv", mimeType="text/csv", buffer=text.encode(encoding))


async def add(served: Api, user: ConsoleUser, **contact: object) -> str:
    """Create a contact and return its id."""
    answer = await served.post("/v1/contacts", user.access.key, json={"consent": "signed_up"} | contact)
    return str(answer.json["id"])


async def test_a_csv_is_checked_then_imported(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    rows = [["E-mail", "Name", "seats:number", "note"], ["new@x.test", 'Ann "A", Jr', "3", "two\r\nlines"]]
    rows += [["nobody", "", "", ""], ["NEW@x.test", "Again", "4", "'=1+1"], ["bad@x.test", "", "many", ""]]
    rows += [[f"p{number}@x.test", f"Zoë {number}", str(number), ""] for number in range(2_500)]
    text = io.StringIO()
    csv.writer(text, delimiter=";").writerows(rows)
    shown = page.page
    await page.go("/contacts/import")
    await shown.get_by_label("CSV file").set_input_files(payload(text.getvalue(), "windows-1252"))
    await shown.get_by_label("Consent of these contacts").select_option("customer")
    await shown.get_by_role("button", name="Check the file").click()
    await expect(shown.get_by_text("Row 3: “nobody” is not an address.")).to_be_visible()
    await expect(shown.get_by_text("Row 5: “many” in seats is not a number.")).to_be_visible()
    await expect(shown.get_by_text("Row 4: Same address as row 2")).to_be_visible()
    assert (await served.get("/v1/contacts", user.access.key)).json["data"] == []  # nothing was sent
    await shown.get_by_role("button", name="Import 2,501 contacts").click()
    await expect(shown.get_by_role("heading", name="Import finished")).to_be_visible()
    async with shown.expect_download() as download:
        await shown.get_by_role("button", name="As CSV").click()
    refused = (await download.value).path()
    report = list(csv.reader((await refused).read_text("utf-8").splitlines()))
    assert [row[:2] for row in report[1:]] == [["3", "nobody"], ["5", "bad@x.test"]]
    found = (await served.get("/v1/contacts?search=new@x.test", user.access.key)).json["data"]
    assert [(one["name"], one["fields"]) for one in found] == [("Again", {"seats": 4, "note": "=1+1"})]
    found = (await served.get("/v1/contacts?search=p7@x.test", user.access.key)).json["data"]
    assert found[0]["name"] == "Zoë 7"


async def test_a_contact_is_created_changed_and_deleted(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    shown = page.page
    await page.go("/contacts")
    await shown.get_by_role("button", name="New contact").first.click()
    await shown.get_by_label("Address", exact=True).fill("ann@x.test")
    await shown.get_by_label("Name", exact=True).fill(HOSTILE)
    await shown.get_by_role("button", name="Create contact").click()
    await expect(shown.get_by_role("heading", level=1, name="ann@x.test")).to_be_visible()
    await shown.get_by_role("button", name="Add field").click()
    await shown.get_by_label("Field name").fill("plan")
    await shown.get_by_label("Value of plan").fill("pro")
    await shown.get_by_role("button", name="Save").click()
    await expect(shown.get_by_text("Contact saved")).to_be_visible()
    contact = (await served.get("/v1/contacts", user.access.key)).json["data"][0]
    assert (contact["name"], contact["fields"]) == (HOSTILE, {"plan": "pro"})
    await shown.get_by_role("button", name="Delete contact").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Delete contact").click()
    await expect(shown.get_by_role("heading", name="No contacts yet")).to_be_visible()


async def test_a_segment_counts_while_it_is_edited(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    for number, plan in enumerate(("pro", "pro", "free")):
        await add(served, user, email=f"p{number}@x.test", fields={"plan": plan})
    shown = page.page
    await page.go("/segments/new")
    await shown.get_by_label("Name", exact=True).fill("Pro")
    await shown.get_by_label("Field name").fill("plan")
    await shown.get_by_label("Value", exact=True).fill("pro")
    await expect(shown.get_by_text("2 contacts match now.")).to_be_visible()
    await shown.get_by_label("Comparison").select_option("ne")
    await expect(shown.get_by_text("1 contact matches now.")).to_be_visible()
    await shown.get_by_role("button", name="Create segment").click()
    await expect(shown.get_by_role("heading", level=1, name="Pro")).to_be_visible()
    stored = (await served.get("/v1/segments", user.access.key)).json["data"]
    assert stored[0]["filter"] == {"all": [{"field": "plan", "op": "ne", "value": "pro"}]}


async def test_a_list_in_use_says_why_it_stays_and_a_segment_that_it_is_gone(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    made = (await served.post("/v1/lists", user.access.key, json={"name": "News"})).json
    filter_ = {"property": "list", "value": made["id"]}
    segment = (await served.post("/v1/segments", user.access.key, json={"name": "Readers", "filter": filter_})).json
    contact = await add(served, user, email="ann@x.test")
    shown = page.page
    await page.go(f"/lists/{made['id']}")
    await shown.get_by_role("button", name="Add contacts").first.click()
    await shown.get_by_role("dialog").get_by_label(f"Select {contact}").check()
    await shown.get_by_role("button", name="Add 1 contact").click()
    await expect(shown.get_by_role("link", name="ann@x.test")).to_be_visible()
    body = {"name": "Issue 1", "from": user.access.sender, "list": made["id"], "subject": "News", "text": "Hi"}
    waiting = (await served.post("/v1/broadcasts", user.access.key, json=body)).json["id"]
    later = {"scheduledAt": clock.iso(clock.now() + timedelta(hours=3))}
    await served.post(f"/v1/broadcasts/{waiting}/send", user.access.key, json=later)
    await shown.get_by_role("button", name="More actions").click()
    await shown.get_by_role("menuitem", name="Delete list").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Delete list").click()
    await expect(shown.get_by_role("dialog").get_by_role("alert")).to_contain_text("scheduled")

    await served.post(f"/v1/broadcasts/{waiting}/cancel", user.access.key)
    await shown.get_by_role("dialog").get_by_role("button", name="Delete list").click()
    await expect(shown.get_by_role("dialog")).not_to_be_visible()
    await page.go(f"/segments/{segment['id']}")
    await expect(shown.get_by_text("A list of this segment was deleted.")).to_be_visible()


async def test_suppressions_are_added_lifted_and_imported(page: ConsolePage, served: Api, user: ConsoleUser) -> None:
    shown = page.page
    await page.go("/suppressions")
    await shown.get_by_role("button", name="Suppress address").first.click()
    await shown.get_by_label("Address", exact=True).fill("ann@x.test")
    await shown.get_by_role("dialog").get_by_role("button", name="Suppress").click()
    row = shown.get_by_role("row").filter(has_text="ann@x.test")
    await row.get_by_role("button", name="Actions of").click()
    await shown.get_by_role("menuitem", name="Remove suppression").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Remove suppression").click()
    await expect(row).to_have_count(0)
    await shown.get_by_role("button", name="Import file").click()
    await shown.get_by_label("File").set_input_files(payload("address,reason\nbob@x.test,manual\nnobody,\n"))
    await shown.get_by_role("dialog").get_by_role("button", name="Import", exact=True).click()
    await expect(shown.get_by_role("dialog")).to_contain_text("1 row was refused.")
    await shown.get_by_role("button", name="Done").click()
    await expect(shown.get_by_role("row").filter(has_text="bob@x.test")).to_be_visible()


async def test_opt_outs_of_a_list_are_added_imported_and_taken_back(
    page: ConsolePage, served: Api, user: ConsoleUser
) -> None:
    made = (await served.post("/v1/lists", user.access.key, json={"name": "News"})).json
    await add(served, user, email="ann@x.test", lists=[made["id"]])
    shown = page.page
    await page.go(f"/lists/{made['id']}")
    await shown.get_by_role("button", name="More actions").click()
    await shown.get_by_role("menuitem", name="Opt-outs of this list").click()
    await shown.get_by_role("button", name="Add opt-out").first.click()
    await shown.get_by_label("Address", exact=True).fill("ann@x.test")
    await shown.get_by_role("dialog").get_by_role("button", name="Add").click()
    await expect(shown.get_by_role("row").filter(has_text="ann@x.test")).to_contain_text("recorded by you")
    await shown.get_by_role("button", name="Import file").click()
    await shown.get_by_label("File").set_input_files(payload("email\nbob@x.test\nnobody\n"))
    await shown.get_by_role("dialog").get_by_role("button", name="Import", exact=True).click()
    await expect(shown.get_by_role("dialog")).to_contain_text("1 row was refused.")
    await shown.get_by_role("button", name="Done").click()
    await shown.get_by_role("button", name="Remove the opt-out of bob@x.test").click()
    await shown.get_by_role("dialog").get_by_role("button", name="Remove opt-out").click()
    await expect(shown.get_by_role("row").filter(has_text="bob@x.test")).to_have_count(0)
    await page.go(f"/lists/{made['id']}")
    await expect(shown.get_by_role("row").filter(has_text="ann@x.test")).to_contain_text("opted out of this list")
