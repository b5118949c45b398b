"""Reply text: quotes and signatures of many mail programs and languages are left out, and nothing else."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.html_text import html_to_text
from engine.mail.reply_text import reply_text
from tests.mail.drafts import THOROUGH

REPLY = "Thank you, that works for us.\n\nOn Friday we can meet at 10:30, from: our office.\nSee you there"
ANN = "Ann Example <ann@example.com>"

# Each stands above a quoted message that is not marked by `>`.
INTRODUCTIONS = [
    line.replace("\\n", "\n")
    for line in (Path(__file__).parents[1] / "data" / "reply-introductions.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
ENDING_IN_COLON = [one for one in INTRODUCTIONS if one.rstrip("\u202c").endswith((":", "：")) and "\nSent" not in one]


@pytest.mark.parametrize("introduction", INTRODUCTIONS)
def test_all_below_an_introduction_is_quoted(introduction: str) -> None:
    text = f"{REPLY}\n\n{introduction}\n\nYour order has shipped.\nIt arrives on 24 November 2026 at 9:00.\n"

    assert reply_text(text) == REPLY
    assert reply_text(text.replace("\n", "\r\n")) == REPLY


@pytest.mark.parametrize("introduction", ENDING_IN_COLON)
def test_answers_between_quotes_are_kept(introduction: str) -> None:
    text = f"{introduction}\n> Can you come?\n>\n> And when?\nYes, gladly.\n> With a guest?\n\nNo, alone.\n"

    assert reply_text(text) == "Yes, gladly.\n\nNo, alone."


SIGNATURES = [
    "-- \nAnn Example\nExample Ltd.\n\nNotice: " + "confidential " * 50,
    "--\nAnn Example\n+1 555 0100",
    "Sent from my iPhone",
    "Sent from my Galaxy",
    "Sent from my iPhone, please excuse my brevity.",
    "Gesendet von meinem Handy, daher kurz",
    "Get Outlook for iOS<https://aka.test/o0ukef>",
    "Sent from Mail for Windows",
    "Sent via example.com",
    "Von meinem iPhone gesendet",
    "Gesendet von Outlook für Android<https://aka.test/a>",
    "Envoyé de mon iPhone",
    "Télécharger Outlook pour iOS<https://aka.test/o>",
    "Enviado desde mi iPhone",
    "Inviato da iPhone",
    "Enviado do meu iPhone",
    "Verstuurd vanaf mijn iPhone",
    "Wysłane z iPhone'a",
    "Skickat från min iPhone",
    "Sendt fra min iPhone",
    "Lähetetty iPhonesta",
    "Odesláno z iPhonu",
    "iPhone'umdan gönderildi",
    "Отправлено с iPhone",
    "Надіслано з мого iPhone",
    "נשלח מה-iPhone שלי",
    "iPhoneから送信",
    "从我的iPhone发送",
    "나의 iPhone에서 보냄",
    "Best regards,\nAnn Example\nExample Ltd.",
    "Mit freundlichen Grüßen\nAnn Example",
    "Cordialement,\n\nAnn Example",
    "Met vriendelijke groet,\nAnn",
]


@pytest.mark.parametrize("signature", SIGNATURES)
def test_signatures_are_left_out(signature: str) -> None:
    assert reply_text(f"{REPLY}\n\n{signature}\n") == REPLY
    assert reply_text(f"{REPLY}\n\n{signature}\n\nOn Sun, 22 Nov 2026 at 15:57, {ANN} wrote:\n> x\n") == REPLY


WHOLE = [
    "On the other hand, this is fine.\nOn Friday he wrote: nothing.",
    "Please read https://example.com/he-wrote: it is good.",
    "I come from: Berlin\nI go to: Paris\nSubject: travel",
    "The log says\n2026-01-15 14:30:25\n2026/01/15 14:30:25\nand nothing else",
    "The steps are:\n1. open\n2. close",
    "We sent from our phone the wrong file. Sent from my point of view it was right?",
    "Sent from my desk, is much easier",
    "Sent with love, as always",
    "Von meinem Schreibtisch aus, ist viel einfacher",
    "git diff\n--- a/file\n+++ b/file\n-old\n+new",
    "Dates:\n\n12.05.2026: first call\n13.05.2026: second call",
    "Regards to your family from us all, and tell them that we have arrived well.",
    "One outstanding question:\nwhen?",
    "a" * 500,
    "Price -- as agreed -- is 100.",
    "He wrote on 12 May 2026 the following.\nI disagree.",
]


@pytest.mark.parametrize("text", WHOLE)
def test_text_that_only_looks_like_a_quote_is_kept(text: str) -> None:
    assert reply_text(text) == text


def test_a_message_of_quotes_alone_has_no_reply() -> None:
    assert reply_text("> a\n> b\n") == ""
    assert reply_text(f"On Sun, 22 Nov 2026 at 15:57, {ANN} wrote:\n\n> a") == ""
    assert reply_text("") == ""
    assert reply_text(None) == ""


QUOTED_HTML = [
    '<div class="gmail_quote"><div class="gmail_attr">On Sun, Ann wrote:</div><blockquote>Old</blockquote></div>',
    '<blockquote type="cite"><div>On Nov 22, Ann wrote:</div>Old</blockquote>',
    '<div class="moz-cite-prefix">Am 22.11.26 schrieb Ann:</div><blockquote type="cite" cite="mid:x">Old</blockquote>',
    '<hr><div id="divRplyFwdMsg" dir="ltr"><b>From:</b> Ann<br><b>Sent:</b> x</div><div>Old</div>',
    '<div id="appendonsend"></div><hr><div><b>Von:</b> Ann</div>Old',
    '<div id="yahoo_quoted_123" class="yahoo_quoted"><div>On Sunday, Ann wrote:</div>Old</div>',
    '<table class="OutlookMessageHeader"><tr><td>From: Ann</td></tr></table>Old',
    '<div class="protonmail_quote">------- Original Message -------<br>Old</div>',
    '<div name="quote" style="margin:10px"><div>Gesendet: Sonntag</div>Old</div>',
    "<div><p><b>From:</b> Ann<br><b>Sent:</b> 22 May 2026<br><b>To:</b> Bob<br><b>Subject:</b> x</p></div><p>Old</p>",
    '<div class="gmail_signature">Ann<div>Ltd.</div></div>',
    '<div id="Signature">Ann</div><div id="x_divRplyFwdMsg">From: Ann</div>Old',
]


@pytest.mark.parametrize("quote", QUOTED_HTML)
def test_marked_quotes_of_html_are_left_out(quote: str) -> None:
    html = f"<html><body><div>Thank <b>you</b>.<br>See you&nbsp;soon</div><br>{quote}</body></html>"

    assert reply_text(None, html) == "Thank you.\nSee you\xa0soon"
    assert reply_text("Thank you.\nSee you soon\n\nAnn kirjutzz jotain:\nOld\n", html) == "Thank you.\nSee you\xa0soon"


def test_html_of_which_all_is_marked_as_quote_is_read_as_a_whole() -> None:
    assert reply_text(None, '<div class="gmail_quote"><p>Only this</p></div>') == "Only this"


def test_html_becomes_lines_of_text() -> None:
    html = (
        "<!doctype html><title>x</title><style>p{}</style><h1>Order</h1><p>Two\n  items:</p><ul><li>one<li>two</ul>"
        "<table><tr><td>Sum</td><td>3&nbsp;&euro;</td></tr></table><pre>a\n b</pre><script>x</script><!-- y -->"
        "<textarea>z</textarea>&lt;end&gt; &#xD800;&#0;&#99999999999;"
    )

    assert html_to_text(html) == ("Order\n\nTwo items:\n\n- one\n- two\n\nSum 3\xa0€\n\na\nb\nz<end> ��&#99999999999;")


SIZE = 100_000
WORST = {
    "newlines": "\n" * SIZE,
    "On": "On " * (SIZE // 3),
    "On lines": "On\n" * (SIZE // 3),
    "On dated lines": "On 10:30 a@b.test\n" * (SIZE // 18),
    "wrote": "wrote: " * (SIZE // 7),
    "From": "From: a\n" * (SIZE // 8),
    "From, Sent, To": "From: a\nSent: 10:30\n" * (SIZE // 19),
    "quotes": ">\n" * (SIZE // 2),
    "quoted once": ">" * SIZE,
    "dashes": "-" * SIZE,
    "dashed lines": "--\n" * (SIZE // 3),
    "rules": "________\n" * (SIZE // 9),
    "dashed words": "-- a\n" * (SIZE // 5),
    "stars": "* " * (SIZE // 2),
    "colons": "a:\n" * (SIZE // 3),
    "regards": "x\nRegards\n" * (SIZE // 10),
    "sent from": "Sent from my\n" * (SIZE // 13),
    "blanks": " " * SIZE,
    "blank lines": "   \n" * (SIZE // 4),
    "links": "Sent http://a \n" * (SIZE // 15),
}


@pytest.mark.parametrize("name", WORST)
def test_worst_texts_take_linear_time(name: str) -> None:
    began = time.process_time()

    reply_text(WORST[name], "<div class=gmail_quote>" + WORST[name])

    assert time.process_time() - began < 1.0  # measured: at most 0.05 s


@THOROUGH
@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_gives_a_text(text: str, html: str) -> None:
    found = reply_text(text, html)

    assert "\0" not in found or "\0" in text
    assert len(found) <= len(text) + len(html) * 4
