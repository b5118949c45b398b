"""The worst inputs of the readers of outside octets: each is read, or refused with the reader's own exception."""

import contextlib

import pytest

from engine.areas.identity.id_tokens import BadToken
from engine.base.errors import Refusal
from ops.bench.readers import mail, peers
from ops.bench.readers.cases import FunctionCase


@pytest.mark.parametrize("case", [*mail.CASES, *peers.CASES], ids=lambda case: f"{case.reader}: {case.worst}")
def test_every_worst_input_is_read_or_refused(case: FunctionCase) -> None:
    content = case.content()
    assert content
    with contextlib.suppress(ValueError, Refusal, BadToken):
        case.read(content)
