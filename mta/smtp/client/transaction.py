"""An envelope in progress, and its result: an answer per recipient and the transcript steps."""

from typing import cast

from msgspec import Struct

from engine.mail.replies import Answer
from mta.smtp.client.envelope import Envelope
from mta.smtp.client.transcript import Json, TranscriptStep, conversation


class Transaction(Struct, frozen=True, gc=False):
    """The result of sending an envelope: `answers[i]` belongs to `recipients[i]`.

    A Break at `Phase.BODY` leaves open whether the message was taken; at any earlier phase it was not.
    """

    recipients: tuple[str, ...]
    answers: tuple[Answer, ...]
    opening: tuple[Json, ...]  # the session's own steps: connect, greeting, EHLO, TLS
    steps: tuple[TranscriptStep, ...]
    opening_octets: int | None = None  # their size in JSON, computed once a session
    pipelined: bool = False  # its commands were sent as a group
    broke_on_commands: bool = False  # the session broke over them, before any content

    @property
    def transcript(self) -> list[Json]:
        """Return the conversation for the waybill: session and transaction, under 4 KB of JSON, no content."""
        return conversation(self.opening, self.steps, self.recipients, opened_octets=self.opening_octets)


class PendingTransaction:
    """An envelope in progress: an answer per recipient, filled as replies arrive."""

    __slots__ = ("accepted", "answers", "began", "behind", "done", "envelope", "mail", "pending", "size", "steps")

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.answers: list[Answer | None] = [None] * len(envelope.recipients)
        self.pending: list[int] = []  # recipients whose RCPT is sent
        self.mail = ""  # its MAIL command
        self.size = 0  # of the content
        self.accepted = 0
        self.steps: list[TranscriptStep] = []
        self.began: float | None = None  # when its first reply became the next one expected
        self.behind = False  # its commands were pipelined behind the content of another
        self.done = False

    def settle(self, answer: Answer) -> None:
        """Give `answer` to every recipient that has none yet."""
        self.answers = [answer if known is None else known for known in self.answers]
        self.accepted = 0

    def settle_one(self, recipient: int, answer: Answer) -> None:
        """Give `answer` to one recipient unless it has one."""
        if self.answers[recipient] is None:
            self.answers[recipient] = answer

    def result(
        self,
        opening: tuple[Json, ...],
        opening_octets: int | None = None,
        *,
        pipelined: bool = False,
        broke_on_commands: bool = False,
    ) -> Transaction:
        """Return the result; only when `done`."""
        assert None not in self.answers
        answers = cast("list[Answer]", self.answers)
        return Transaction(
            self.envelope.recipients,
            tuple(answers),
            opening,
            tuple(self.steps),
            opening_octets,
            pipelined,
            broke_on_commands,
        )
