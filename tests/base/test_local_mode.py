"""Local mode refuses open sign-up and private targets while other machines can reach it."""

import pytest
from msgspec import structs

from engine.base import local_mode
from engine.base.settings import Settings

LOCAL = Settings(delivery="local")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_on_loopback_everybody_may_sign_up(host: str) -> None:
    settings = structs.replace(LOCAL, api_host=host)

    assert local_mode.may_sign_up(settings)
    assert local_mode.warning(settings) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "mail.example.com"])
def test_on_an_address_that_others_reach_nobody_may_unless_the_operator_says_so(host: str) -> None:
    settings = structs.replace(LOCAL, api_host=host)

    assert not local_mode.may_sign_up(settings)
    assert not local_mode.may_dial_private(settings, None)
    assert "local mode" in local_mode.sign_up_closed(settings)
    warning = local_mode.warning(settings)
    assert warning is not None
    assert "WAYBILL_SIGNUP=open" in warning
    allowed = structs.replace(settings, signup="open", allow_private_webhooks=True)
    assert local_mode.may_sign_up(allowed)
    assert local_mode.warning(allowed) is None


def test_live_mode_and_the_setting_are_as_before() -> None:
    live = Settings(delivery="live", api_host="0.0.0.0")

    assert local_mode.may_sign_up(live)
    assert not local_mode.may_sign_up(structs.replace(live, signup="closed"))
    assert "invitation" in local_mode.sign_up_closed(structs.replace(live, signup="closed"))
    assert local_mode.warning(live) is None
