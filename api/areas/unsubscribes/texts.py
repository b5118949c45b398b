"""The texts of the unsubscribe page in all languages. `{sender}`, `{address}` and `{topic}` are filled in."""

from typing import Final

from msgspec import Struct


class UnsubscribeTexts(Struct, frozen=True, kw_only=True):
    """The texts of one language."""

    ask: str  # titles
    out: str
    out_of_topic: str
    back: str
    asks: str  # paragraphs
    is_out: str
    is_out_of_topic: str
    is_back: str
    gone: str
    all_button: str
    topic_button: str
    undo_note: str
    undo_button: str
    hint: str


TEXTS: Final = {
    "en": UnsubscribeTexts(
        ask="Unsubscribe",
        out="You are unsubscribed",
        out_of_topic="You are unsubscribed from “{topic}”",
        back="You are subscribed again",
        asks="Stop the newsletters and announcements that {sender} sends to {address}?",
        is_out="{sender} sends no more newsletters and announcements to {address}.",
        is_out_of_topic="{address} no longer gets “{topic}”, but may get other newsletters from {sender}.",
        is_back="{address} gets mail from {sender} as before.",
        gone="This link belongs to no mailing any more, so no mail is sent because of it.",
        all_button="Unsubscribe from all",
        topic_button="Only stop “{topic}”",
        undo_note="Was that a mistake?",
        undo_button="Undo",
        hint="Messages that you asked for, such as receipts and passwords, still arrive.",
    ),
    "de": UnsubscribeTexts(
        ask="Abmelden",
        out="Sie sind abgemeldet",
        out_of_topic="Sie sind von „{topic}“ abgemeldet",
        back="Sie sind wieder angemeldet",
        asks="Newsletter und Ankündigungen von {sender} an {address} beenden?",
        is_out="{sender} schickt keine Newsletter und Ankündigungen mehr an {address}.",
        is_out_of_topic="{address} bekommt „{topic}“ nicht mehr, vielleicht aber andere Newsletter von {sender}.",
        is_back="{address} bekommt wieder Post von {sender}.",
        gone="Dieser Link gehört zu keiner Aussendung mehr; es wird seinetwegen nichts verschickt.",
        all_button="Von allem abmelden",
        topic_button="Nur „{topic}“ beenden",
        undo_note="War das ein Versehen?",
        undo_button="Rückgängig machen",
        hint="Nachrichten, die Sie selbst veranlassen, etwa Belege und Passwörter, kommen weiterhin an.",
    ),
    "es": UnsubscribeTexts(
        ask="Cancelar la suscripción",
        out="Su suscripción está cancelada",
        out_of_topic="Su suscripción a «{topic}» está cancelada",
        back="Su suscripción vuelve a estar activa",
        asks="¿Dejar de recibir los boletines y anuncios que {sender} envía a {address}?",
        is_out="{sender} ya no envía boletines ni anuncios a {address}.",
        is_out_of_topic="{address} ya no recibe «{topic}», pero puede recibir otros boletines de {sender}.",
        is_back="{address} vuelve a recibir correo de {sender}.",
        gone="Este enlace ya no pertenece a ningún envío; no se envía ningún correo por él.",
        all_button="Cancelar todo",
        topic_button="Cancelar solo «{topic}»",
        undo_note="¿Ha sido un error?",
        undo_button="Deshacer",
        hint="Los mensajes que usted solicita, como recibos y contraseñas, siguen llegando.",
    ),
    "fr": UnsubscribeTexts(
        ask="Se désabonner",
        out="Désabonnement effectué",
        out_of_topic="Désabonnement de « {topic} » effectué",
        back="Abonnement rétabli",
        asks="Ne plus recevoir les lettres d’information et annonces que {sender} envoie à {address} ?",
        is_out="{sender} n’envoie plus de lettres d’information ni d’annonces à {address}.",
        is_out_of_topic=(
            "{address} ne reçoit plus « {topic} », mais peut recevoir d’autres lettres d’information de {sender}."
        ),
        is_back="{address} reçoit de nouveau les messages de {sender}.",
        gone="Ce lien n’appartient plus à aucun envoi ; aucun message n’est envoyé à cause de lui.",
        all_button="Se désabonner de tout",
        topic_button="Arrêter seulement « {topic} »",
        undo_note="C’était une erreur ?",
        undo_button="Annuler",
        hint="Les messages que vous demandez, comme les reçus et les mots de passe, arrivent toujours.",
    ),
    "it": UnsubscribeTexts(
        ask="Annulla l’iscrizione",
        out="L’iscrizione è annullata",
        out_of_topic="L’iscrizione a «{topic}» è annullata",
        back="L’iscrizione è di nuovo attiva",
        asks="Non ricevere più le newsletter e gli annunci che {sender} invia a {address}?",
        is_out="{sender} non invia più newsletter né annunci a {address}.",
        is_out_of_topic="{address} non riceve più «{topic}», ma può ricevere altre newsletter da {sender}.",
        is_back="{address} riceve di nuovo la posta di {sender}.",
        gone="Questo link non appartiene più a nessun invio; nessun messaggio viene inviato per causa sua.",
        all_button="Annulla tutto",
        topic_button="Annulla solo «{topic}»",
        undo_note="È stato un errore?",
        undo_button="Ripristina",
        hint="I messaggi che richiede, come ricevute e password, continuano ad arrivare.",
    ),
    "nl": UnsubscribeTexts(
        ask="Afmelden",
        out="U bent afgemeld",
        out_of_topic="U bent afgemeld voor ‘{topic}’",
        back="U bent weer aangemeld",
        asks="Geen nieuwsbrieven en aankondigingen meer van {sender} aan {address}?",
        is_out="{sender} stuurt geen nieuwsbrieven en aankondigingen meer naar {address}.",
        is_out_of_topic="{address} krijgt ‘{topic}’ niet meer, maar misschien wel andere nieuwsbrieven van {sender}.",
        is_back="{address} krijgt weer post van {sender}.",
        gone="Deze link hoort niet meer bij een mailing; er wordt niets om deze reden verstuurd.",
        all_button="Voor alles afmelden",
        topic_button="Alleen ‘{topic}’ stoppen",
        undo_note="Was dit een vergissing?",
        undo_button="Ongedaan maken",
        hint="Berichten waar u zelf om vraagt, zoals bonnen en wachtwoorden, blijven aankomen.",
    ),
    "pl": UnsubscribeTexts(
        ask="Wypisz się",
        out="Wypisano z subskrypcji",
        out_of_topic="Wypisano z „{topic}”",
        back="Subskrypcja jest znów aktywna",
        asks="Czy {sender} ma przestać wysyłać newslettery i ogłoszenia na adres {address}?",
        is_out="{sender} nie wysyła już newsletterów ani ogłoszeń na adres {address}.",
        is_out_of_topic="Na adres {address} nie przyjdzie już „{topic}”, ale mogą przyjść inne od {sender}.",
        is_back="Na adres {address} znów przychodzi poczta od {sender}.",
        gone="Ten link nie należy już do żadnej wysyłki; z jego powodu nic nie jest wysyłane.",
        all_button="Wypisz ze wszystkiego",
        topic_button="Wypisz tylko z „{topic}”",
        undo_note="To była pomyłka?",
        undo_button="Cofnij",
        hint="Wiadomości, o które prosisz, na przykład potwierdzenia i hasła, nadal przychodzą.",
    ),
    "pt": UnsubscribeTexts(
        ask="Cancelar a subscrição",
        out="A sua subscrição está cancelada",
        out_of_topic="A sua subscrição de «{topic}» está cancelada",
        back="A sua subscrição está de novo ativa",
        asks="Deixar de receber as newsletters e os anúncios que {sender} envia para {address}?",
        is_out="{sender} já não envia newsletters nem anúncios para {address}.",
        is_out_of_topic="{address} já não recebe «{topic}», mas pode receber outras newsletters de {sender}.",
        is_back="{address} volta a receber correio de {sender}.",
        gone="Esta ligação já não pertence a nenhum envio; nada é enviado por causa dela.",
        all_button="Cancelar tudo",
        topic_button="Cancelar só «{topic}»",
        undo_note="Foi um engano?",
        undo_button="Anular",
        hint="As mensagens que pede, como recibos e palavras-passe, continuam a chegar.",
    ),
}
