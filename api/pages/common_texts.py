"""The texts of pages that tell why a link can't be used, in all languages."""

from typing import Final

from msgspec import Struct


class CommonTexts(Struct, frozen=True):
    """The pages for an unknown link, too many of them, and an unavailable service: each a title and a sentence."""

    unknown: tuple[str, str]
    too_many: tuple[str, str]
    unavailable: tuple[str, str]


TEXTS: Final = {
    "en": CommonTexts(
        unknown=(
            "This link does not work",
            "It may be incomplete. Copy the whole link from the message, and try again.",
        ),
        too_many=("Too many requests", "Wait a minute, and try again."),
        unavailable=("This does not work just now", "Try again in a few minutes."),
    ),
    "de": CommonTexts(
        unknown=(
            "Dieser Link funktioniert nicht",
            "Vielleicht ist er unvollständig. Kopieren Sie den ganzen Link aus der Nachricht und öffnen Sie ihn.",
        ),
        too_many=("Zu viele Anfragen", "Warten Sie eine Minute und versuchen Sie es erneut."),
        unavailable=(
            "Das funktioniert gerade nicht",
            "Versuchen Sie es in einigen Minuten erneut.",
        ),
    ),
    "es": CommonTexts(
        unknown=(
            "Este enlace no funciona",
            "Puede que esté incompleto. Copie el enlace entero del mensaje e inténtelo de nuevo.",
        ),
        too_many=("Demasiadas solicitudes", "Espere un minuto e inténtelo de nuevo."),
        unavailable=("Esto no funciona en este momento", "Inténtelo de nuevo en unos minutos."),
    ),
    "fr": CommonTexts(
        unknown=(
            "Ce lien ne fonctionne pas",
            "Il est peut-être incomplet. Copiez le lien entier depuis le message, puis réessayez.",
        ),
        too_many=("Trop de requêtes", "Attendez une minute, puis réessayez."),
        unavailable=("Cela ne fonctionne pas pour le moment", "Réessayez dans quelques minutes."),
    ),
    "it": CommonTexts(
        unknown=(
            "Questo link non funziona",
            "Forse è incompleto. Copi l’intero link dal messaggio e riprovi.",
        ),
        too_many=("Troppe richieste", "Attenda un minuto e riprovi."),
        unavailable=("Al momento non funziona", "Riprovi tra qualche minuto."),
    ),
    "nl": CommonTexts(
        unknown=(
            "Deze link werkt niet",
            "Misschien is hij onvolledig. Kopieer de hele link uit het bericht en probeer het opnieuw.",
        ),
        too_many=("Te veel verzoeken", "Wacht een minuut en probeer het opnieuw."),
        unavailable=("Dit werkt nu even niet", "Probeer het over enkele minuten opnieuw."),
    ),
    "pl": CommonTexts(
        unknown=(
            "Ten link nie działa",
            "Może być niekompletny. Skopiuj cały link z wiadomości i spróbuj ponownie.",
        ),
        too_many=("Zbyt wiele żądań", "Odczekaj minutę i spróbuj ponownie."),
        unavailable=("To w tej chwili nie działa", "Spróbuj ponownie za kilka minut."),
    ),
    "pt": CommonTexts(
        unknown=(
            "Esta ligação não funciona",
            "Pode estar incompleta. Copie a ligação inteira da mensagem e tente de novo.",
        ),
        too_many=("Demasiados pedidos", "Aguarde um minuto e tente de novo."),
        unavailable=("Isto não funciona neste momento", "Tente de novo dentro de alguns minutos."),
    ),
}
