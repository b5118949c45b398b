"""The texts of the pages behind confirmation links, in all languages of `api.pages`."""

from typing import Final

from msgspec import Struct


class LinkTexts(Struct, frozen=True):
    """Title and sentence of the page that asks, with its button, of the page after it, and of an ended link."""

    ask: tuple[str, str]
    button: str
    done: tuple[str, str]
    ended: tuple[str, str]


TEXTS: Final = {
    "en": LinkTexts(
        ask=("Confirm your address", "Press the button only if you asked for this yourself, just now."),
        button="Confirm",
        done=("Your address is confirmed", "You can close this page and go on where you were."),
        ended=("This link has ended", "It was used, replaced by a newer one, or is too old. Ask for a new code."),
    ),
    "de": LinkTexts(
        ask=("Adresse bestätigen", "Drücken Sie den Knopf nur, wenn Sie dies gerade selbst angefordert haben."),
        button="Bestätigen",
        done=("Ihre Adresse ist bestätigt", "Sie können diese Seite schließen und dort weitermachen, wo Sie waren."),
        ended=("Dieser Link gilt nicht mehr", "Er wurde benutzt, ersetzt oder ist zu alt. Fordern Sie einen Code an."),
    ),
    "es": LinkTexts(
        ask=("Confirme su dirección", "Pulse el botón solo si acaba de solicitarlo usted."),
        button="Confirmar",
        done=("Su dirección está confirmada", "Puede cerrar esta página y continuar donde estaba."),
        ended=("Este enlace ya no es válido", "Se ha usado, se ha sustituido o es muy antiguo. Pida otro código."),
    ),
    "fr": LinkTexts(
        ask=("Confirmez votre adresse", "N’appuyez sur le bouton que si vous venez d’en faire la demande."),
        button="Confirmer",
        done=("Votre adresse est confirmée", "Vous pouvez fermer cette page et reprendre où vous en étiez."),
        ended=("Ce lien n’est plus valable", "Il a servi, a été remplacé ou est trop ancien. Demandez un autre code."),
    ),
    "it": LinkTexts(
        ask=("Confermi il suo indirizzo", "Prema il pulsante solo se lo ha appena richiesto lei."),
        button="Conferma",
        done=("Il suo indirizzo è confermato", "Può chiudere questa pagina e continuare da dove era."),
        ended=("Questo link non vale più", "È stato usato, sostituito o è troppo vecchio. Richieda un altro codice."),
    ),
    "nl": LinkTexts(
        ask=("Bevestig uw adres", "Druk alleen op de knop als u hier zojuist zelf om hebt gevraagd."),
        button="Bevestigen",
        done=("Uw adres is bevestigd", "U kunt deze pagina sluiten en verdergaan waar u was."),
        ended=("Deze link is niet meer geldig", "Hij is gebruikt, vervangen of te oud. Vraag een nieuwe code aan."),
    ),
    "pl": LinkTexts(
        ask=("Potwierdź swój adres", "Naciśnij przycisk tylko wtedy, gdy to Ty przed chwilą o to prosisz."),
        button="Potwierdź",
        done=("Adres został potwierdzony", "Możesz zamknąć tę stronę i kontynuować."),
        ended=("Ten link już nie działa", "Został użyty, zastąpiony albo jest za stary. Poproś o nowy kod."),
    ),
    "pt": LinkTexts(
        ask=("Confirme o seu endereço", "Prima o botão apenas se acabou de o pedir."),
        button="Confirmar",
        done=("O seu endereço está confirmado", "Pode fechar esta página e continuar onde estava."),
        ended=("Esta ligação já não é válida", "Foi usada, substituída ou é demasiado antiga. Peça outro código."),
    ),
}
