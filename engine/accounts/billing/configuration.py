"""Read the settings of billing once per process: prices, tax rates, seller, payment provider."""

from decimal import Decimal
from typing import Final

from msgspec import Struct

from engine.accounts.billing.prices import BadPrices, PriceList, read_prices
from engine.accounts.billing.providers.payprov import Payprov
from engine.accounts.billing.providers.protocol import PaymentProvider
from engine.accounts.billing.providers.stripe_provider import StripeMissing, StripeProvider
from engine.accounts.billing.tax import BadTaxRates, is_country, read_rates
from engine.base.secrets import derived
from engine.base.settings import BadSetting, Settings, variable
from engine.store.http_client import HttpClient

# What a purchase costs in local mode, where nobody pays.
_EXAMPLE_PRICES: Final = (
    "starter:month:EUR=1900,starter:year:EUR=19000,growth:month:EUR=7900,growth:year:EUR=79000,"
    "scale:month:EUR=24900,scale:year:EUR=249000"
)
_EXAMPLE_SELLER: Final = "Waybill (local mode)"


class Seller(Struct, frozen=True):
    """The seller's name and address on invoices; stored with each of them."""

    name: str
    address: str | None = None
    country: str | None = None
    tax_id: str | None = None
    email: str | None = None


class Billing(Struct, frozen=True):
    """The configuration of billing. Without prices, seller and provider nothing can be bought; reading works."""

    prices: PriceList
    rates: dict[str, Decimal]
    seller: Seller | None
    provider: PaymentProvider | None
    providers: dict[str, PaymentProvider]

    @property
    def sells(self) -> bool:
        """Return True if plans can be bought."""
        return bool(self.prices.prices) and self.seller is not None and self.provider is not None


def configured(settings: Settings, client: HttpClient | None = None) -> Billing:
    """Return the configuration; raises BadSetting. `client` reaches the provider, for renewals."""
    providers = _providers(settings, client)
    return Billing(
        prices=_prices(settings),
        rates=_rates(settings),
        seller=_seller(settings),
        provider=providers.get(settings.payment_provider),
        providers=providers,
    )


def payprov_secrets(settings: Settings) -> tuple[str, ...]:
    """Return the present secret of `payprov` and the one before; in local mode one that is derived from the pepper."""
    if settings.payprov_secret is not None:
        return _secrets(settings.payprov_secret)
    if settings.delivery == "local" and settings.key_pepper is not None:
        return tuple(derived(one, "payprov").hex() for one in settings.pepper.accepted)
    return ()


def is_simulated(settings: Settings) -> bool:
    """Return True if the API itself plays the payment provider: in local mode, unless another one is set."""
    return settings.delivery == "local" and settings.payprov_url is None and settings.payment_provider == "payprov"


def _providers(settings: Settings, client: HttpClient | None) -> dict[str, PaymentProvider]:
    found: dict[str, PaymentProvider] = {}
    url = f"{settings.public_url}/payprov" if is_simulated(settings) else settings.payprov_url
    secrets = payprov_secrets(settings)
    if url is not None and secrets:
        found["payprov"] = Payprov(url, secrets, client)
    if settings.stripe_key is not None:
        found["stripe"] = _stripe(settings, settings.stripe_key)
    return found


def _stripe(settings: Settings, key: str) -> StripeProvider:
    secrets = _secrets(settings.stripe_webhook_secret)
    if not secrets:
        raise BadSetting(
            f"{variable('stripe_key')} needs {variable('stripe_webhook_secret')}: events are signed with it."
        )
    try:
        return StripeProvider(key, secrets, return_url=settings.public_url, base_url=settings.stripe_url)
    except StripeMissing as error:
        raise BadSetting(str(error)) from None


def _secrets(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, (text or "").split(","))))[:2]


def _prices(settings: Settings) -> PriceList:
    text = settings.prices
    if text is None:
        text = _EXAMPLE_PRICES if settings.delivery == "local" else ""
    try:
        return read_prices(text)
    except BadPrices as error:
        raise BadSetting(f"{variable('prices')}: {error}") from None


def _rates(settings: Settings) -> dict[str, Decimal]:
    try:
        return read_rates(settings.tax_rates or "")
    except BadTaxRates as error:
        raise BadSetting(f"{variable('tax_rates')}: {error}") from None


def _seller(settings: Settings) -> Seller | None:
    if settings.seller_country is not None and not is_country(settings.seller_country):
        raise BadSetting(
            f"{variable('seller_country')} is {settings.seller_country!r}; write one of ISO 3166, such as DE."
        )
    name = settings.seller_name or (_EXAMPLE_SELLER if settings.delivery == "local" else None)
    if name is None:
        return None
    address = None if settings.seller_address is None else settings.seller_address.replace(" | ", "\n")
    return Seller(name, address, settings.seller_country, settings.seller_tax_id, settings.seller_email)
