"""Domains in the console: add one, see what differs from the wanted record, delete it."""

import re
from typing import Any

import pytest
from playwright.async_api import Route, expect

from api.console import assets
from tests.harness.browser import ConsolePage, ConsoleUser

COMPARE = f"/console-files/{assets.files().version}/app/parts/compare.js"


async def test_a_domain_is_added_and_deleted(page: ConsolePage) -> None:
    shown = page.page
    await page.go("/domains")
    await shown.get_by_role("button", name="Add domain").first.click()
    await shown.get_by_label("Domain", exact=True).fill("Shop.Example.Test")
    await shown.get_by_role("dialog").get_by_role("button", name="Add domain").click()
    await expect(shown.get_by_role("heading", level=1)).to_have_text("shop.example.test")
    await shown.get_by_label("Record names").select_option("example.test")
    await expect(shown.get_by_text("wb1._domainkey.shop", exact=True)).to_be_visible()
    await shown.get_by_role("button", name="More actions").click()
    await shown.get_by_role("menuitem", name="Delete domain").click()
    confirm = shown.get_by_role("button", name="Delete domain")
    await expect(confirm).to_have_attribute("aria-disabled", "true")
    await shown.get_by_label("Type shop.example.test to confirm").fill("shop.example.test")
    await confirm.click()
    await expect(shown.get_by_role("heading", level=1)).to_have_text("Domains")
    await expect(shown.get_by_role("link", name="shop.example.test")).to_have_count(0)


async def test_the_required_record_comes_first_and_the_rest_is_folded(page: ConsolePage) -> None:
    await page.go("/domains")
    await page.page.get_by_role("main").get_by_role("link").first.click()
    tables = page.page.get_by_role("table")
    await expect(tables).to_have_count(2)  # those in folded parts are hidden
    await expect(tables.first).to_have_accessible_name("Required records")
    await expect(tables.first.get_by_role("row")).to_have_count(2)
    await expect(tables.last).to_contain_text("_dmarc")
    await page.page.get_by_text("More records (").click()
    await expect(page.page.get_by_role("table", name="More records")).to_contain_text("_smtp._tls")


async def test_a_wrong_record_is_compared_character_by_character(page: ConsolePage) -> None:
    async def spoil(route: Route) -> None:
        answer = await route.fetch()
        domain: dict[str, Any] = await answer.json()
        record = domain["records"][0]
        record |= {"status": "mismatch", "found": ['"' + record["value"].replace("k=rsa", "k=rsb")]}
        domain["status"] = "failed"
        await route.fulfill(response=answer, json=domain)

    shown = page.page
    await shown.route("**/v1/domains/*/setup", spoil)
    await shown.route("**/v1/domains/*/verify", lambda route: route.abort())
    await page.go("/domains")
    await shown.get_by_role("main").get_by_role("link").first.click()
    compared = shown.get_by_role("group", name="Wanted and found")
    await expect(compared.locator("del")).to_have_text(["a"])
    await expect(compared.locator("ins")).to_have_text(['"', "b"])
    await expect(shown.get_by_text("The value contains a single quotation mark")).to_be_visible()
    await expect(shown.get_by_text("Next automatic check in")).to_be_visible()


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"type": "CNAME", "value": "a.test", "found": ["a.test.shop.test"], "mistake": "End it so."}, "End it so."),
        ({"type": "MX", "value": "10 mail.test", "found": ["20 mail.test"]}, "priority is 20"),
        ({"type": "TXT", "value": "v=DKIM1; p=AbC", "found": ["v=DKIM1; p=aBC"]}, "Upper and lower case"),
        ({"type": "TXT", "value": "v=DKIM1; p=AbC", "found": ["v=DKIM1; p=A"]}, "ends after 12 of 14"),
        ({"type": "TXT", "value": "v=DKIM1; p=AbC", "found": ["v=DKIM1\\; p=AbC"]}, "backslashes"),
        ({"type": "TXT", "value": "v=x", "found": ["v=x", "v=x y"], "mistake": "Leave one."}, "Leave one."),
    ],
)
async def test_the_usual_mistakes_are_named(page: ConsolePage, record: dict[str, Any], sentence: str) -> None:
    await page.go("/domains")
    told = await page.page.evaluate(
        "async ([path, record]) => (await import(path)).mistakes(record)", [COMPARE, record]
    )
    assert sentence in " ".join(told)


async def test_differences_spell_both_texts(page: ConsolePage) -> None:
    await page.go("/domains")
    broken = await page.page.evaluate(
        """async (path) => {
          const { differences } = await import(path);
          const letters = [..."abA "];
          const below = (limit) => Math.floor(Math.random() * limit);
          const text = () => Array.from({ length: below(9) }, () => letters[below(4)]).join("");
          const spelled = (pieces, without) =>
            pieces.filter(([kind]) => kind !== without).map(([, piece]) => piece).join("");
          const some = Array.from({ length: 2000 }, () => [text(), text()]);
          const pairs = [["", ""], ["x".repeat(5000), "y".repeat(5000)], ...some];
          return pairs.filter(([wanted, found]) => {
            const pieces = differences(wanted, found);
            return spelled(pieces, "extra") !== wanted || spelled(pieces, "missing") !== found;
          });
        }""",
        COMPARE,
    )
    assert broken == []


async def test_all_records_are_copied_as_lines_of_a_zone_file(page: ConsolePage, user: ConsoleUser) -> None:
    shown = page.page
    await page.go("/domains")
    await shown.get_by_role("main").get_by_role("link", name=user.domain).click()
    await shown.get_by_role("button", name="Copy all records").click()
    await expect(shown.get_by_text("All records copied")).to_be_visible()
    lines = (await shown.evaluate("navigator.clipboard.readText()")).splitlines()
    (dmarc,) = [line for line in lines if line.startswith("_dmarc.")]
    assert dmarc.startswith(f'_dmarc.{user.domain}. 3600 IN TXT "v=DMARC1;'), dmarc
    (key,) = [line for line in lines if line.startswith("wb1._domainkey.")]
    assert re.search(r'^\S+ 3600 IN (TXT "[^"]{255}" "[^"]+"|CNAME \S+\.)$', key), key
