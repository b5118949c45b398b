"""Keys, a zone of key records, and dkimpy as the judge of our verifiers."""

import base64
import re
import time
from typing import Final

import dkim as dkimpy
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key

from engine.authentication import dkim_check as dkim
from engine.authentication import public_keys
from engine.authentication.canonicalization import SignedMessage
from engine.authentication.dkim_check import DkimResult
from engine.authentication.dkim_signing import generate_ed25519, generate_rsa, load, public_txt
from engine.authentication.public_keys import UnusableKey

RSA_DER: Final = generate_rsa()
ED_DER: Final = generate_ed25519()
RELAY_DER: Final = generate_rsa()
RSA: Final = load("shop.test", "wb1", RSA_DER)
ED: Final = load("shop.test", "wb2", ED_DER)
RELAY: Final = load("relay.test", "r1", RELAY_DER)
RECORDS: Final = {
    "wb1._domainkey.shop.test": public_txt(RSA_DER).encode(),
    "wb2._domainkey.shop.test": public_txt(ED_DER).encode(),
    "r1._domainkey.relay.test": public_txt(RELAY_DER).encode(),
}
RSA_PEM: Final = load_der_private_key(RSA_DER, None).private_bytes(
    Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
)
ED_SEED: Final = base64.b64encode(
    load_der_private_key(ED_DER, None).private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
)


_bare = re.compile(rb"(?<!\r)\n|\r(?!\n)").search


def comes_over_smtp(mime: bytes) -> bool:
    """Return True if the MX accepts these line ends; dkimpy mends others, and our verifier takes them as they are."""
    return _bare(mime) is None and mime.endswith(b"\r\n")


def verified(mime: bytes, records: dict[str, bytes] = RECORDS, *, at: int | None = None) -> list[DkimResult]:
    """Return the results of our verifier, with the keys of `records`."""
    message = SignedMessage(mime)
    found = dkim.signatures(message)
    names = [one.key_name for one in found if isinstance(one, dkim.DkimSignature)]
    keys = {
        name: public_keys.parse_key(records[name]) if name in records else UnusableKey(f"no key at {name}")
        for name in names
    }
    return dkim.verify_all(message, found, keys, at=int(time.time()) if at is None else at)


def judged(mime: bytes, index: int = 0, records: dict[str, bytes] = RECORDS) -> bool | None:
    """Return what dkimpy says of one signature; None if it can't parse the message."""
    try:
        return bool(dkimpy.DKIM(mime).verify(index, lambda name, timeout: records.get(name.decode().rstrip("."), b"")))
    except (dkimpy.MessageFormatError, IndexError):  # IndexError: a header that begins with a folded line
        return None
    except (dkimpy.DKIMException, ValueError):
        return False
