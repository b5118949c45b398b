"""The mail of double opt-in, in all languages. Pure."""

from html import escape
from typing import Final, Literal

from msgspec import Struct

Locale = Literal["en", "de", "es", "fr", "it", "nl", "pl", "pt"]


class ConfirmationMail(Struct, frozen=True):
    """The subject and bodies of one mail."""

    subject: str
    text: str
    html: str


class _Texts(Struct, frozen=True):
    subject: str
    ask: str
    button: str
    ignore: str


_TEXTS: Final[dict[str, _Texts]] = {
    "en": _Texts(
        "Confirm your subscription to {sender}",
        "{sender} wants to send newsletters to this address. Do you want them?",
        "Confirm the subscription",
        "If you did not ask for this, ignore this message: you will not be subscribed.",
    ),
    "de": _Texts(
        "Bestätigen Sie Ihre Anmeldung bei {sender}",
        "{sender} möchte Newsletter an diese Adresse senden. Möchten Sie sie erhalten?",
        "Anmeldung bestätigen",
        "Wenn Sie das nicht angefordert haben, ignorieren Sie diese Nachricht: Sie werden nicht angemeldet.",
    ),
    "es": _Texts(
        "Confirme su suscripción a {sender}",
        "{sender} quiere enviar boletines a esta dirección. ¿Desea recibirlos?",
        "Confirmar la suscripción",
        "Si no lo ha pedido, ignore este mensaje: no quedará suscrito.",
    ),
    "fr": _Texts(
        "Confirmez votre abonnement à {sender}",
        "{sender} souhaite envoyer des lettres d’information à cette adresse. Voulez-vous les recevoir ?",
        "Confirmer l’abonnement",
        "Si vous ne l’avez pas demandé, ignorez ce message : vous ne serez pas abonné.",
    ),
    "it": _Texts(
        "Confermi la sua iscrizione a {sender}",
        "{sender} vuole inviare newsletter a questo indirizzo. Desidera riceverle?",
        "Conferma l’iscrizione",
        "Se non l’ha richiesto, ignori questo messaggio: non sarà iscritto.",
    ),
    "nl": _Texts(
        "Bevestig uw aanmelding bij {sender}",
        "{sender} wil nieuwsbrieven naar dit adres sturen. Wilt u ze ontvangen?",
        "Aanmelding bevestigen",
        "Als u dit niet hebt gevraagd, negeer dan dit bericht: u wordt niet aangemeld.",
    ),
    "pl": _Texts(
        "Potwierdź subskrypcję: {sender}",
        "{sender} chce wysyłać newslettery na ten adres. Czy chcesz je otrzymywać?",
        "Potwierdź subskrypcję",
        "Jeśli o to nie prosisz, zignoruj tę wiadomość: nie zapiszemy Cię.",
    ),
    "pt": _Texts(
        "Confirme a sua subscrição de {sender}",
        "{sender} quer enviar newsletters para este endereço. Deseja recebê-las?",
        "Confirmar a subscrição",
        "Se não o pediu, ignore esta mensagem: não será subscrito.",
    ),
}


def confirmation_mail(locale: Locale, *, sender: str, url: str) -> ConfirmationMail:
    """Return the mail that asks a contact to confirm; `sender` is the name that the contact knows."""
    texts = _TEXTS[locale]
    ask = texts.ask.replace("{sender}", sender)
    html = (
        f'<p dir="auto">{escape(ask)}</p>\n<p><a href="{escape(url)}">{escape(texts.button)}</a></p>\n'
        f"<p>{escape(texts.ignore)}</p>\n"
    )
    return ConfirmationMail(
        texts.subject.replace("{sender}", sender)[:900],
        f"{ask}\n\n{texts.button}:\n{url}\n\n{texts.ignore}\n",
        html,
    )
