"""The texts of the page behind double opt-in links, in all languages. `{sender}` and `{address}` are filled in."""

from typing import Final

from msgspec import Struct


class ConfirmationTexts(Struct, frozen=True):
    """The texts of one language: titles, and the paragraphs below them."""

    ask: str
    asks: str
    button: str
    done: str
    is_done: str
    gone: str
    is_gone: str


TEXTS: Final = {
    "en": ConfirmationTexts(
        "Confirm your subscription",
        "Should {sender} send newsletters and announcements to {address}?",
        "Confirm",
        "Your subscription is confirmed",
        "{sender} may now send newsletters and announcements to {address}.",
        "This link has expired",
        "Subscribe again to get a new one.",
    ),
    "de": ConfirmationTexts(
        "Anmeldung bestätigen",
        "Soll {sender} Newsletter und Ankündigungen an {address} senden?",
        "Bestätigen",
        "Ihre Anmeldung ist bestätigt",
        "{sender} darf jetzt Newsletter und Ankündigungen an {address} senden.",
        "Dieser Link ist abgelaufen",
        "Melden Sie sich erneut an, um einen neuen zu erhalten.",
    ),
    "es": ConfirmationTexts(
        "Confirmar la suscripción",
        "¿Desea que {sender} envíe boletines y anuncios a {address}?",
        "Confirmar",
        "Su suscripción está confirmada",
        "{sender} puede enviar ahora boletines y anuncios a {address}.",
        "Este enlace ha caducado",
        "Suscríbase de nuevo para recibir otro.",
    ),
    "fr": ConfirmationTexts(
        "Confirmer l’abonnement",
        "{sender} peut-il envoyer des lettres d’information et des annonces à {address} ?",
        "Confirmer",
        "Votre abonnement est confirmé",
        "{sender} peut désormais envoyer des lettres d’information et des annonces à {address}.",
        "Ce lien a expiré",
        "Abonnez-vous de nouveau pour en recevoir un autre.",
    ),
    "it": ConfirmationTexts(
        "Conferma l’iscrizione",
        "Vuole che {sender} invii newsletter e annunci a {address}?",
        "Conferma",
        "La sua iscrizione è confermata",
        "{sender} può ora inviare newsletter e annunci a {address}.",
        "Questo link è scaduto",
        "Si iscriva di nuovo per riceverne un altro.",
    ),
    "nl": ConfirmationTexts(
        "Aanmelding bevestigen",
        "Mag {sender} nieuwsbrieven en aankondigingen sturen naar {address}?",
        "Bevestigen",
        "Uw aanmelding is bevestigd",
        "{sender} mag nu nieuwsbrieven en aankondigingen sturen naar {address}.",
        "Deze link is verlopen",
        "Meld u opnieuw aan om een nieuwe te ontvangen.",
    ),
    "pl": ConfirmationTexts(
        "Potwierdź subskrypcję",
        "Czy {sender} może wysyłać newslettery i ogłoszenia na adres {address}?",
        "Potwierdź",
        "Subskrypcja jest potwierdzona",
        "{sender} może teraz wysyłać newslettery i ogłoszenia na adres {address}.",
        "Ten link wygasł",
        "Zapisz się ponownie, aby otrzymać nowy.",
    ),
    "pt": ConfirmationTexts(
        "Confirmar a subscrição",
        "Deseja que {sender} envie newsletters e anúncios para {address}?",
        "Confirmar",
        "A sua subscrição está confirmada",
        "{sender} pode agora enviar newsletters e anúncios para {address}.",
        "Esta ligação expirou",
        "Subscreva de novo para receber outra.",
    ),
}
