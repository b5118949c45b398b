"""Where passkeys work, and refusal of malformed input before it reaches the library."""

import cbor2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import ErrorType, Refusal
from engine.base.settings import BadSetting, load
from engine.people.passkeys import ceremony, rules
from engine.people.passkeys.ceremony import Assertion, Attestation, Rejected
from engine.people.passkeys.rules import RelyingParty
from tests.harness.authenticator import PRESENT, VERIFIED, Authenticator, new_key, public_cose, text

PARTY = RelyingParty("mail.example.com", "https://mail.example.com")
OPTIONS = {"challenge": text(b"c" * 32), "rp": {"id": PARTY.id}, "user": {"id": text(b"u" * 16)}}


def attestation(answer: dict[str, object]) -> Attestation:
    response = answer["response"]
    assert isinstance(response, dict)
    return Attestation(
        str(answer["id"]), str(answer["rawId"]), response["clientDataJSON"], response["attestationObject"]
    )


def assertion(answer: dict[str, object]) -> Assertion:
    response = answer["response"]
    assert isinstance(response, dict)
    return Assertion(
        str(answer["id"]), str(answer["rawId"]), response["clientDataJSON"], response["authenticatorData"],
        response["signature"], response["userHandle"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("url", "rp_id", "party"),
    [
        ("https://mail.example.com", None, ("mail.example.com", "https://mail.example.com")),
        ("https://mail.example.com:443/", None, ("mail.example.com", "https://mail.example.com")),
        ("https://Mail.Example.com:8443/x", None, ("mail.example.com", "https://mail.example.com:8443")),
        ("https://mail.example.com", "example.com", ("example.com", "https://mail.example.com")),
        ("http://127.0.0.1:8080", None, ("localhost", "http://localhost:8080")),
        ("http://[::1]:8080", None, ("localhost", "http://localhost:8080")),
        ("http://localhost:8080", None, ("localhost", "http://localhost:8080")),
    ],
)
def test_a_passkey_is_bound_to_the_public_urls_host(url: str, rp_id: str | None, party: tuple[str, str]) -> None:
    assert rules.relying_party(url, rp_id) == RelyingParty(*party)


@pytest.mark.parametrize(
    ("url", "rp_id", "word"),
    [
        ("https://192.0.2.7", None, "192.0.2.7"),
        ("https://[2001:db8::1]", None, "2001:db8::1"),
        ("http://mail.example.com", None, "https"),
        ("https://mail.example.com", "other.example.com", "other.example.com"),
        ("https://mail.example.com", "ail.example.com", "ail.example.com"),
    ],
)
def test_where_browsers_have_no_passkeys_the_refusal_says_why(url: str, rp_id: str | None, word: str) -> None:
    with pytest.raises(Refusal) as refused:
        rules.relying_party(url, rp_id)

    assert refused.value.kind is ErrorType.INVALID_STATE
    assert word in refused.value.message


@pytest.mark.parametrize("wanted", ["example.org", "com", "ail.example.com", "https://example.com"])
def test_an_rp_id_that_is_not_above_the_host_is_no_setting(wanted: str) -> None:
    with pytest.raises(BadSetting, match="WAYBILL_PASSKEY_RP_ID"):
        load({"WAYBILL_PUBLIC_URL": "https://mail.example.com", "WAYBILL_PASSKEY_RP_ID": wanted})


def test_an_rp_id_above_the_host_is_one() -> None:
    loaded = load({"WAYBILL_PUBLIC_URL": "https://mail.example.com", "WAYBILL_PASSKEY_RP_ID": "Example.com"})

    assert rules.relying_party(loaded.settings.public_url, loaded.settings.passkey_rp_id).id == "example.com"


def test_a_page_elsewhere_is_told_where_to_go() -> None:
    rules.check_page(PARTY, None)
    rules.check_page(PARTY, PARTY.origin)
    with pytest.raises(Refusal, match=r"https://mail\.example\.com"):
        rules.check_page(PARTY, "http://127.0.0.1:8080")


@pytest.mark.parametrize("name", ["", "   ", "a" * 101, "a\x00b", "a\nb", "\u202eevil", "\ud800"])
def test_a_name_that_cannot_be_shown_is_none(name: str) -> None:
    with pytest.raises(Refusal):
        rules.checked_name(name)


@pytest.mark.parametrize("text", ["a b", "é", "ab+/", "a", "====", "ab=c", "a\n"])
def test_only_base64url_is_base64url(text: str) -> None:
    with pytest.raises(Rejected):
        ceremony.octets(text)


@given(st.binary(max_size=200))
def test_base64url_reads_back(value: bytes) -> None:
    assert ceremony.octets(ceremony.text_of(value)) == value


# -- registration -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [-7, -8, -257])
def test_each_algorithm_registers_and_signs(algorithm: int) -> None:
    device = Authenticator(PARTY.origin)
    made = ceremony.registered(
        attestation(device.create(OPTIONS, algorithm=algorithm)),  # type: ignore[arg-type]
        b"c" * 32,
        PARTY,
    )

    proof = ceremony.signed(assertion(device.get(OPTIONS)), b"c" * 32, PARTY, made.public_key)

    assert proof.sign_count == 1
    assert made.credential_id == device.credentials[0].id


def test_an_authenticators_own_attestation_is_taken() -> None:
    answer = Authenticator(PARTY.origin).create(OPTIONS, attestation="self")

    assert ceremony.registered(attestation(answer), b"c" * 32, PARTY).sign_count == 0


def wrong_curve() -> dict[int, object]:
    numbers = ec.generate_private_key(ec.SECP384R1()).public_key().public_numbers()
    return {1: 2, 3: -7, -1: 2, -2: numbers.x.to_bytes(48, "big"), -3: numbers.y.to_bytes(48, "big")}


KEY = public_cose(new_key(-7))
COSE_KEYS: dict[str, dict[int, object]] = {
    "no such algorithm": KEY | {3: -35},
    "no algorithm": {1: 2, -1: 1},
    "another kind than its algorithm's": public_cose(new_key(-8)) | {3: -7},
    "RSA that calls itself ES256": public_cose(new_key(-257)) | {3: -7},
    "another curve": wrong_curve(),
    "off the curve": KEY | {-2: bytes(32)},
    "RSA without end": {1: 3, 3: -257, -1: b"\xff" * 2000, -2: b"\x01\x00\x01"},
    "RSA with a silly exponent": {1: 3, 3: -257, -1: b"\xff" * 256, -2: b"\x02"},
    "text for octets": KEY | {-2: "x" * 32},
    "empty": {},
}


@pytest.mark.parametrize("cose", COSE_KEYS.values(), ids=COSE_KEYS.keys())
def test_a_public_key_that_could_never_verify_is_not_registered(cose: dict[int, object]) -> None:
    answer = Authenticator(PARTY.origin).create(OPTIONS, cose=cose)

    with pytest.raises(Rejected):
        ceremony.registered(attestation(answer), b"c" * 32, PARTY)


SPOILED: dict[str, dict[str, object]] = {
    "another challenge": {"challenge": text(b"d" * 32)},
    "another origin": {"origin": "https://evil.example.com"},
    "plain http": {"origin": "http://mail.example.com"},
    "another port": {"origin": "https://mail.example.com:8443"},
    "a frame": {"crossOrigin": True},
    "a signature for a registration": {"type": "webauthn.get"},
    "another RP id": {"rp_id": "example.com"},
    "nobody there": {"flags": VERIFIED},
    "nobody verified": {"flags": PRESENT},
    "backed up though it can't be": {"flags": PRESENT | VERIFIED | 0x10},
    "an attestation nobody asked for": {"attestation": "tpm"},
    "a short id": {"id_bytes": b"short"},
    "a long id": {"id_bytes": b"x" * 1024},
}


@pytest.mark.parametrize("spoiled", SPOILED.values(), ids=SPOILED.keys())
def test_a_registration_with_anything_wrong_is_rejected(spoiled: dict[str, object]) -> None:
    answer = Authenticator(PARTY.origin).create(OPTIONS, **spoiled)  # type: ignore[arg-type]

    with pytest.raises(Rejected):
        ceremony.registered(attestation(answer), b"c" * 32, PARTY)


def test_an_id_beside_another_credential_is_rejected() -> None:
    device = Authenticator(PARTY.origin)
    answer, other = attestation(device.create(OPTIONS)), attestation(device.create(OPTIONS))
    mixed = Attestation(other.id, other.raw_id, answer.client_data, answer.attestation)

    with pytest.raises(Rejected):
        ceremony.registered(mixed, b"c" * 32, PARTY)


# -- assertion --------------------------------------------------------------------------------------


def test_a_signature_against_nobodys_key_is_rejected_however_good_it_is() -> None:
    device = Authenticator(PARTY.origin)
    device.create(OPTIONS)
    device.credentials[0].counter = 5

    with pytest.raises(Rejected):
        ceremony.signed(assertion(device.get(OPTIONS)), b"c" * 32, PARTY, None)


@given(st.binary(max_size=300), st.binary(max_size=300), st.binary(max_size=100))
def test_no_octets_pass_for_an_assertion(told: bytes, data: bytes, signature: bytes) -> None:
    key = cbor2.dumps(KEY)
    answer = Assertion(text(b"i" * 16), text(b"i" * 16), text(told), text(data), text(signature), None)

    with pytest.raises(Rejected):
        ceremony.signed(answer, b"c" * 32, PARTY, key)


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.binary(max_size=40) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(-5, 5) | st.text(max_size=5), inner),
    max_leaves=12,
)


@given(NESTED, NESTED, NESTED)
def test_no_cbor_passes_for_a_registration(form: object, statement: object, key: object) -> None:
    device = Authenticator(PARTY.origin)
    good = attestation(device.create(OPTIONS))
    head = cbor2.loads(ceremony.octets(good.attestation))["authData"][: 55 + 32]
    wrapped = cbor2.dumps({"fmt": form, "attStmt": statement, "authData": head + cbor2.dumps(key)})
    answer = Attestation(good.id, good.raw_id, good.client_data, text(wrapped))

    with pytest.raises(Rejected):
        ceremony.registered(answer, b"c" * 32, PARTY)


@given(st.binary(max_size=250))
def test_no_octets_pass_for_what_an_authenticator_says(data: bytes) -> None:
    good = attestation(Authenticator(PARTY.origin).create(OPTIONS))
    head = cbor2.loads(ceremony.octets(good.attestation))["authData"][:37]
    for said in (data, head + data):
        wrapped = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": said})
        with pytest.raises(Rejected):
            ceremony.registered(Attestation(good.id, good.raw_id, good.client_data, text(wrapped)), b"c" * 32, PARTY)


@pytest.mark.parametrize(
    "wrapped",
    [b"\x81" * 20_000, b"\xbb" + b"\xff" * 8, b"\x9b" + b"\x7f" * 8, b"\xc2\x5b" + b"\x00" * 7 + b"\xff", b"\xa0", b""],
    ids=["nested", "map without end", "list without end", "number", "empty map", "nothing"],
)
def test_hostile_cbor_is_rejected_at_once(wrapped: bytes) -> None:
    good = attestation(Authenticator(PARTY.origin).create(OPTIONS))

    with pytest.raises(Rejected):
        ceremony.registered(Attestation(good.id, good.raw_id, good.client_data, text(wrapped)), b"c" * 32, PARTY)


@pytest.mark.parametrize("told", [b"null", b"[]", b"{", b'{"challenge": 5}', b"[" * 3_000, b'"x"', b"\xff\xfe"])
def test_client_data_that_is_none_has_no_challenge(told: bytes) -> None:
    with pytest.raises(Rejected):
        ceremony.challenge_of(text(told))
