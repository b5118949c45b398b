"""Messages of the corpus and generated ones show all words and files; other readers agree, or a rule says why."""

from email import message_from_bytes, policy
from email.message import Message

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from engine.mail.body_parts import decoded_part, mail_content
from engine.mail.read import Bodies, bodies, files
from engine.mail.received import read_received, received_attachment, summarise
from engine.mail.received_warnings import TEXTS
from engine.mail.reply_text import reply_text
from engine.mail.searchable_text import searchable_text
from tests.harness.sampling import examples
from tests.mail.node_readers import shown_by
from tests.mail.written_mail import DECLARED, FAULTS, STRUCTURES, Written, corpus, written

CORPUS = list(corpus())
# 6,000 messages with `ops test --all`, the same in each run: 20,000 took a sixth of the time of all tests.
GENERATED = examples(6_000 // len(STRUCTURES), share=30, suppress_health_check=[HealthCheck.too_slow])


def check(one: Written) -> None:
    """Assert that all words and files of a message are shown, and the same in every reading of it."""
    found = read_received(one.mime)
    shown = (found.text or "") + (found.html or "")

    assert all(word in shown for word in one.words)
    assert [received_attachment(one.mime, file.index) for file in found.attachments] == [
        content for _, content in one.files
    ]
    for file, (name, _) in zip(found.attachments, one.files, strict=True):
        assert name is None or file.filename == name
    assert all(warning.code in TEXTS for warning in found.warnings)
    assert bodies(one.mime) == Bodies(found.text, found.html)
    assert [file.content for file in files(one.mime)] == [content for _, content in one.files]
    assert summarise(one.mime).attachments == found.attachments
    if one.words:
        assert one.words[0] in found.snippet
        assert one.words[0] in searchable_text(one.mime, found.text_parts, found.html_parts, 1_000)
        assert one.words[0] in reply_text(found.author_text, found.author_html)


def codes(one: Written) -> set[str]:
    """Return the warnings of a message, but for the Date that none has."""
    return {warning.code for warning in read_received(one.mime).warnings} - {"date_missing"}


@pytest.mark.parametrize("one", CORPUS, ids=lambda one: one.label)
def test_all_words_and_files_of_a_message_are_shown(one: Written) -> None:
    check(one)


@pytest.mark.parametrize("structure", STRUCTURES)
@GENERATED
@given(st.data())
def test_all_words_and_files_of_any_message_are_shown(structure: str, data: st.DataObject) -> None:
    check(data.draw(written(structure)))


def test_the_corpus_has_400_messages() -> None:
    assert len({one.mime for one in CORPUS}) >= 400


def test_only_messages_with_faults_have_warnings() -> None:
    expected = {"epilogue": "text_outside_parts", "name raw Latin-1": "charset_guessed"}
    for one in CORPUS:
        multipart = b"multipart/" in one.mime
        reasons = {code for feature, code in expected.items() if feature in one.features}
        if "text_outside_parts" in reasons and (not multipart or "no end" in one.features):
            reasons.remove("text_outside_parts")
        if not any(name for name, _ in one.files):
            reasons.discard("charset_guessed")
        assert codes(one) == reasons, one.label


# -- the standard library ----------------------------------------------------------------------------

# At these features Python's `email` reads other parts, contents or names than this reader, for this reason.
_ENCODING = "It compares the whole field, so that a comment, a quote or a blank makes the encoding unknown."
_BOTH = {
    "boundary of the parent": "It lets the outer multipart have the line, and drops what follows its end.",
    "boundary parent's and dashes": "It takes the beginning of the inner multipart for the end of the outer one.",
    "boundary dashes of the parent": "It shows an empty part where an end and a beginning are the same line.",
    "boundary no semicolon": "It finds no parameter without a semicolon, and shows the source.",
    "name no semicolon": "It finds no parameter without a semicolon.",
    "name encoded word, unquoted": "It ends an unquoted value at the first letter that is no token.",
    "name raw Latin-1": "It replaces octets that are not UTF-8.",
    "no end": "It drops the line end before a boundary that is missing.",
    **{f"declared {spelling}": _ENCODING for spelling in DECLARED[1:]},
}
RULES = {
    "compat32": _BOTH | {
        "boundary comment": "It keeps comments in values.",
        "boundary comment, unquoted": "It keeps comments in values.",
        "boundary folded": "It keeps the line end of a folded value.",
        "name comment": "It keeps comments in values.",
        "name comment, unquoted": "It keeps comments in values.",
        "name encoded word": "It decodes no encoded words in parameters, where RFC 2047 5 forbids them.",
        "name encoded word, base64": "It decodes no encoded words in parameters.",
        "name encoded words, folded": "It decodes no encoded words in parameters.",
        "name escaped": "It undoes the escapes of quotes and backslashes only.",
        "name open quote": "It keeps a quote that is not closed.",
        "name raw UTF-8": "It replaces octets outside ASCII.",
    },
    "default": _BOTH | {
        "boundary brackets": "It drops a comment where a value is missing, and shows the source.",
    },
}  # fmt: skip
POLICIES = {"compat32": policy.compat32, "default": policy.default}


def python_leaves(message: Message) -> list[tuple[str | None, bytes]]:
    """Return the name and the decoded content of each leaf as the standard library reads them."""
    found = ((part.get_filename(), part.get_payload(decode=True)) for part in message.walk() if not part.is_multipart())
    return [(name, content if isinstance(content, bytes) else b"") for name, content in found]


def leaves(mime: bytes) -> list[tuple[str | None, bytes]]:
    """Return the same of this reader."""
    found = mail_content(mime)
    parts = sorted({*found.text, *found.html, *found.attached}, key=lambda part: part.start)
    return [(part.names[0] if part.names else None, decoded_part(mime, part)[0]) for part in parts]


def differs(one: Written, reader: str) -> bool:
    """Return True if the standard library reads other leaves."""
    try:
        return python_leaves(message_from_bytes(one.mime, policy=POLICIES[reader])) != leaves(one.mime)
    except (ValueError, AttributeError, IndexError, TypeError):  # errors of its own that some names cause
        return True


@pytest.mark.parametrize("reader", POLICIES)
def test_the_standard_library_agrees_or_a_rule_says_why(reader: str) -> None:
    rules = RULES[reader]
    used: set[str] = set()
    for one in CORPUS:
        known = one.features & rules.keys()
        if differs(one, reader):
            assert known, one.label
            used |= known
    assert used == rules.keys()


@pytest.mark.parametrize("structure", STRUCTURES)
@GENERATED
@given(st.data())
def test_the_standard_library_agrees_on_any_message_or_a_rule_says_why(structure: str, data: st.DataObject) -> None:
    one = data.draw(written(structure))
    for reader, rules in RULES.items():
        if not one.features & rules.keys():
            assert not differs(one, reader)


# -- readers for Node ---------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["mailparser", "postal-mime"])
def test_readers_for_node_show_no_word_and_no_file_that_this_reader_lacks(package: str) -> None:
    for one, other in zip(CORPUS, shown_by(package, [one.mime for one in CORPUS]), strict=True):
        found = read_received(one.mime)
        mine = (found.text or "") + (found.html or "")
        contents = {received_attachment(one.mime, file.index) for file in found.attachments}
        # Files that they found in the source of a part, or cut off, are none of the message's.
        theirs = {file for file in other.files if file in {content for _, content in one.files}}
        assert theirs <= contents, one.label
        assert all(word in mine for word in one.words if word in other.words), one.label


@pytest.mark.parametrize("package", ["mailparser", "postal-mime"])
def test_readers_for_node_agree_on_well_formed_messages(package: str) -> None:
    plain = {"boundary plain", "name RFC 2231", "declared {}"}
    usual = [one for one in CORPUS if plain <= one.features and not one.features & {*FAULTS, "calendar"}]
    assert len(usual) > 50

    for one, other in zip(usual, shown_by(package, [one.mime for one in usual]), strict=True):
        assert sorted(other.files) == sorted(content for _, content in one.files), one.label
        assert all(word in other.words for word in one.words), one.label
        assert set(filter(None, other.names)) == {name for name, _ in one.files if name}, one.label
