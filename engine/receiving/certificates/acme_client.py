"""Talk to a certificate authority by ACME (RFC 8555), with the `acme` package, which is an optional dependency.

The package blocks: call these functions in a thread. Every request has a time limit, and a whole order too.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_der_private_key

from engine.receiving.certificates.types import IssuedCertificate

REQUEST_S: Final = 20
ORDER_S: Final = 120.0
USER_AGENT: Final = "Waybill"
MAX_ERROR: Final = 400  # characters kept of an authority's error text


class AcmeUnavailable(RuntimeError):  # noqa: N818 - named for what it says
    """The `acme` package is not installed; the text says how to install it."""


class AcmeFailed(Exception):  # noqa: N818 - named for what happened
    """The authority refused or did not answer; the text says why."""


class AcmeAccountUnknown(AcmeFailed):
    """The authority does not know the account at the URL (any more); register it again."""


def new_account_key() -> bytes:
    """Return a new account key, P-256 in PKCS #8 DER."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


class AcmeClient:
    """The account at one authority; used by one thread at a time."""

    def __init__(self, directory: str, account_key: bytes, *, url: str | None, authorities: Path | None) -> None:
        """`url`: of the account, None before `register`. `authorities`: PEM file to trust instead of the system's.

        Raises AcmeUnavailable without the package, AcmeFailed if the authority does not answer.
        """
        self._acme = _package()
        self.url = url
        self._key = self._acme.jose.JWKEC(key=load_der_private_key(account_key, None))
        network = self._acme.client.ClientNetwork(
            self._key, alg=self._acme.jose.ES256, user_agent=USER_AGENT, timeout=REQUEST_S,
            verify_ssl=True if authorities is None else str(authorities),
        )  # fmt: skip
        with self._acme.failures():
            self._client = self._acme.client.ClientV2(
                self._acme.client.ClientV2.get_directory(directory, network), network
            )
            if url is not None:
                network.account = self._acme.messages.RegistrationResource(
                    uri=url, body=self._acme.messages.Registration()
                )

    def register(self, email: str | None) -> None:
        """Register the account key, or find its account, and set `url`; agrees to the terms."""
        messages = self._acme.messages
        with self._acme.failures():
            new = messages.NewRegistration.from_data(email=email, terms_of_service_agreed=True)
            try:
                account = self._client.new_account(new)
            except self._acme.errors.ConflictError as known:
                self.url = str(known.location)
                return
        self.url = str(account.uri)

    def issue(self, host: str, answer: Callable[[str, str], None]) -> IssuedCertificate:
        """Get a certificate for `host` (P-256) by HTTP-01; `answer(token, text)` must publish before it returns."""
        key_pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        csr = self._acme.crypto_util.make_csr(key_pem, [host])
        with self._acme.failures():
            order = self._client.new_order(csr)
            for authorization in order.authorizations:
                self._answer(authorization, answer)
            done = self._client.poll_and_finalize(order, datetime.now() + timedelta(seconds=ORDER_S))  # noqa: DTZ005 - the package compares with naive local time
        return IssuedCertificate(key_pem, str(done.fullchain_pem))

    def _answer(self, authorization: Any, answer: Callable[[str, str], None]) -> None:
        if authorization.body.status == self._acme.messages.STATUS_VALID:
            return
        http01 = self._acme.challenges.HTTP01
        challenge = next((one for one in authorization.body.challenges if isinstance(one.chall, http01)), None)
        if challenge is None:
            raise AcmeFailed("the authority offers no HTTP-01 challenge")
        response, text = challenge.response_and_validation(self._key)
        answer(challenge.chall.encode("token"), text)
        self._client.answer_challenge(challenge, response)


class _Package:
    """The modules of the `acme` package, imported on first use: they take 0.2 s and 15 MB."""

    def __init__(self) -> None:
        import josepy  # noqa: PLC0415 - imported on first use
        import requests  # noqa: PLC0415
        from acme import challenges, client, crypto_util, errors, messages  # noqa: PLC0415

        self.challenges, self.client, self.crypto_util = challenges, client, crypto_util
        self.errors, self.messages, self.jose = errors, messages, josepy
        self._caught = (errors.Error, messages.Error, requests.RequestException, josepy.errors.Error, ValueError)

    def failures(self) -> "_Failures":
        """Return a context manager that turns the package's exceptions into AcmeFailed."""
        return _Failures(self._caught)


class _Failures:
    def __init__(self, caught: tuple[type[BaseException], ...]) -> None:
        self._caught = caught

    def __enter__(self) -> None:
        """Enter the block."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Translate an exception of the package."""
        if error is not None and isinstance(error, self._caught) and not isinstance(error, AcmeFailed):
            unknown = getattr(error, "code", None) == "accountDoesNotExist"  # RFC 8555, section 6.7
            raise (AcmeAccountUnknown if unknown else AcmeFailed)(_text_of(error)) from error


def _text_of(error: BaseException) -> str:
    return (str(error) or repr(error)).replace("\0", "")[:MAX_ERROR]


def _package() -> _Package:
    try:
        return _Package()
    except ImportError as error:
        raise AcmeUnavailable(
            f"WAYBILL_ACME_DIRECTORY is set, but the package acme can't be imported ({error}). Install waybill[acme]."
        ) from error
