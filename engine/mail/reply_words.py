"""Words with which mail programs introduce a quoted message or end a reply, in about 30 languages.

All are in lower case and NFC, without trailing colons. Add what a new mail program writes here.
"""

import re
from typing import Final

# "On <date>, <name> wrote:"; how a line before a quote begins.
_OPENING: Final = """
    on|am|vom|le|el|il|in data|em|op|w dniu|dnia|den|d\\.|på|dne|dňa|dana|în|pe|la data|на|в|από|στις|la|el dia
    |el día|vào|vào lúc|เมื่อ|pada|pada tanggal|בתאריך|ב-|ב|في|บน|於|于|在|on date|il giorno|le jeu|kuupäeval
"""
# The verb in such a line, as a whole word; inflected forms by their stem where the end varies.
_WROTE: Final = """
    wrote|writes|schrieb|schrieb am|hat geschrieben|a écrit|écrit|a ecrit|escribió|escribio|ha scritto|scrive
    |escreveu|schreef|heeft geschreven|napisał|napisała|napisał\\(a\\)|napisal|napisala|napisal\\(a\\)|pisze|skrev
    |skreiv|kirjoitti|napsal|napsala|napsal\\(a\\)|napísal|napísala|napísal\\(a\\)|napisao|napisala je|napisao/la
    |je napisao|írta|a scris|yazdı|şunları yazdı|şunu yazdı|написал|написала|написал\\(а\\)|пишет|писал|писала
    |написав|пише|написа|написао|έγραψε|έγραψαν|כתב|כתבה|כתב/ה|מאת|كتب|كتبت|va escriure|ha escrit|đã viết|เขียน
    |เขียนว่า|menulis|rašė|rakstīja|kirjutas|ha skrivet|skrifaði|написао/ла
"""
# Languages that write no blanks between words: anywhere in the line.
_WROTE_INSIDE: Final = ("写道", "寫道", "書きました", "のメール", "님이 작성", "작성:", "씀:", "さんは", "来信")

# Labels of the header of a quoted message.
_FROM: Final = """
    from|von|de|da|van|od|från|fra|lähettäjä|feladó|de la|expeditor|kimden|gönderen|от|от кого|від|από|מאת|من|差出人
    |发件人|寄件者|寄件人|보낸 사람|보낸사람|từ|người gửi|จาก|dari|odesílatel|odosielateľ|nadawca|expéditeur
    |remitente|mittente|remetente|afzender|avsändare|afsender|avsender|saatja|kellelt|no|nuo|šalje|pošiljatelj
    |pošiljalac|од|отправитель|відправник|подател|αποστολέας|absender|送信者|送信元|发信人
"""
_DATE: Final = """
    sent|message du|date|gesendet|datum|envoyé|enviado|enviado el|enviada em|enviado em|fecha|inviato|data|verzonden
    |wysłano|wysłane|skickat|sendt|dato|lähetetty|päivämäärä|päiväys|elküldve|dátum|odesláno|odoslané|trimis|tarih
    |gönderildi|gönderme tarihi|отправлено|дата|надіслано|изпратено|στάλθηκε|ημερομηνία|נשלח|תאריך|تاريخ الإرسال
    |التاريخ|تم الإرسال|送信日時|日付|日時|发送时间|发送日期|日期|寄件日期|傳送日期|보낸 날짜|날짜|đã gửi|ngày
    |ngày gửi|ส่ง|วันที่|dikirim|tanggal|poslano|poslato|saadetud|kuupäev|išsiųsta|nosūtīts|послато|data wysłania
    |envoyé le|data invio|date d'envoi|sendt dato|enviat
"""
_TO: Final = """
    to|copie à|an|à|a|para|aan|do|till|til|vastaanottaja|címzett|komu|pro|către|kime|alıcı|кому|до|προς|אל|إلى|宛先
    |收件人|收件者|받는 사람|받는사람|đến|tới|người nhận|ถึง|kepada|za|destinataire|destinatario|destinatário
    |ontvanger|empfänger|mottagare|adresat|saaja|kam|prima|получатель|per|cc|kopie|copie|copia|cópia|kopia|kopi
    |kopio|копия|копія|másolat|參考|抄送|副本|참조
"""
_SUBJECT: Final = """
    subject|sujet|betreff|objet|asunto|oggetto|assunto|onderwerp|temat|ämne|emne|aihe|tárgy|předmět|predmet|subiect
    |konu|тема|относно|θέμα|נושא|الموضوع|件名|主题|主旨|主題|제목|chủ đề|tiêu đề|เรื่อง|หัวเรื่อง|subjek|perihal
    |zadeva|teema|tema|предмет|assumpte|naslov|efni
"""
# Between dashes, above a quoted or forwarded message.
_SEPARATORS: Final = """
    original message|original-nachricht|originalnachricht|ursprüngliche nachricht|ursprüngliche mail
    |message d'origine|message d’origine|message original|message initial|mensaje original|messaggio originale
    |mensagem original|mensagem reencaminhada|oorspronkelijk bericht|origineel bericht|oprindelig besked
    |oprindelig meddelelse|ursprungligt meddelande|originalmeddelande|opprinnelig melding|original melding
    |alkuperäinen viesti|původní zpráva|původní e-mail|pôvodná správa|wiadomość oryginalna|oryginalna wiadomość
    |eredeti üzenet|mesaj original|mesajul original|orijinal mesaj|orjinal mesaj|özgün ileti|исходное сообщение
    |оригинальное сообщение|пересылаемое сообщение|пересланное сообщение|вихідне повідомлення
    |оригінальне повідомлення|оригинално съобщение|αρχικό μήνυμα|הודעה מקורית|הודעה שהועברה|الرسالة الأصلية
    |رسالة أصلية|元のメッセージ|オリジナルメッセージ|original mail|原始邮件|原始郵件|原邮件|回复的原邮件|转发邮件
    |轉寄郵件|원본 메시지|원본 메일|전달된 메일|thư gốc|tin nhắn gốc|pesan asli|izvorna poruka|originalna poruka
    |izvirno sporočilo|missatge original|algne kiri|sākotnējais ziņojums|original e-mail|forwarded message
    |forwarded by|weitergeleitete nachricht|message transféré|mensaje reenviado|messaggio inoltrato
    |mensagem encaminhada|doorgestuurd bericht|videresendt meddelelse|videresendt besked|vidarebefordrat meddelande
    |videresendt melding|välitetty viesti|přeposlaná zpráva|preposlaná správa|przekazana wiadomość
    |wiadomość przekazana dalej|továbbított üzenet|mesaj redirecționat|yönlendirilmiş ileti|iletilen mesaj
    |переслане повідомлення|препратено съобщение|προωθημένο μήνυμα|転送されたメッセージ|reply message
    |reply above this line
"""
# Signatures of mail programs: how the line begins.
_MOBILE: Final = """
    sent from my|sent from mail for|sent from outlook|sent from yahoo|sent from proton|sent from samsung
    |sent from aol|sent via|sent with|get outlook for|sent on the go|von meinem|gesendet von|gesendet mit
    |von unterwegs gesendet|diese nachricht wurde von meinem|envoyé de mon|envoyé depuis|envoyé à partir|envoyé avec
    |télécharger outlook|obtenir outlook|enviado desde|enviado con|obtener outlook|descargar outlook|inviato da
    |inviato dal|inviato con|scarica outlook|ottieni outlook|enviado do|enviado a partir|enviado pelo|enviado via
    |obter o outlook|obtenha o outlook|verstuurd vanaf|verzonden vanaf|verzonden met|verstuurd via|outlook voor
    |download outlook|pobierz outlook|wysłane z|wysłano z|skickat från|skickades från|hämta outlook|sendt fra
    |hent outlook|få outlook|lähetetty|hanki outlook|odesláno z|odoslané z|získat outlook|stáhnout outlook|küldve
    |az én iphone|trimis de pe|descarcă outlook|iphone'umdan|iphone'dan|android için outlook|ios için outlook
    |отправлено с|отправлено из|надіслано з|изпратено от|στάλθηκε από|εστάλη από|נשלח מה|נשלח מ|قم بالحصول|أرسل من
    |أُرسلت من|مرسل من|iphoneから|私のiphoneから送信|発信元|从我的|发自我的|發自我的|從我的|傳送自|나의 iphone
    |내 iphone에서|đã gửi từ|gửi từ|ส่งจาก|dikirim dari|poslano s|poslano z|poslato sa|enviat des|saadetud minu
    |išsiųsta iš|nosūtīts no|outlook for android|outlook for ios|posláno z
"""
# What such a line names before its first comma; one that goes on and names none of these is a sentence of the writer.
_DEVICES: Final = """
    phone|ipad|ipod|android|galaxy|samsung|huawei|xiaomi|pixel|oneplus|blackberry|nokia|mobil|handy|telefon|teléfono
    |téléphone|telefono|telefoon|móvil|celular|cellulare|tablet|device|gerät|laptop|computer|macbook|windows|outlook
    |mail|proton|yahoo|aol|телефон|айфон|手机|手機
"""
# Closing phrases, alone on a line, before a name and an address.
_REGARDS: Final = """
    regards|best regards|kind regards|warm regards|with regards|with best regards|with kind regards|many regards
    |kindest regards|warmest regards|yours sincerely|yours faithfully|sincerely|sincerely yours|respectfully
    |mit freundlichen grüßen|mit freundlichen grüssen|mit freundlichem gruß|freundliche grüße|freundliche grüsse|mfg
    |viele grüße|beste grüße|liebe grüße|herzliche grüße|cordialement|bien cordialement|bien à vous
    |sincères salutations|salutations distinguées|saludos|un saludo|saludos cordiales|atentamente|un cordial saludo
    |cordiali saluti|distinti saluti|un saluto|atenciosamente|cumprimentos|com os melhores cumprimentos
    |met vriendelijke groet|met vriendelijke groeten|vriendelijke groet|hartelijke groet|z poważaniem|pozdrawiam
    |med vänliga hälsningar|vänliga hälsningar|med venlig hilsen|venlig hilsen|med vennlig hilsen|vennlig hilsen|mvh
    |ystävällisin terveisin|s pozdravem|s pozdravom|üdvözlettel|cu stimă|cu respect|saygılarımla|iyi çalışmalar
    |с уважением|з повагою|с уважение|με εκτίμηση|בברכה|مع أطيب التحيات|敬具|此致|此致敬礼|감사합니다 드림
    |trân trọng|lep pozdrav|srdačan pozdrav|salutacions
"""


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", " ").split("|") if word.strip()]


def _alternatives(text: str) -> str:
    return "|".join(sorted(_words(text), key=len, reverse=True))


def _labels() -> dict[str, str]:
    table: dict[str, str] = {}
    for kind, text in (("to", _TO), ("subject", _SUBJECT), ("date", _DATE), ("from", _FROM)):
        table |= dict.fromkeys(_words(text), kind)
    return table


LABELS: Final = _labels()  # label: from, date, to or subject
SEPARATORS: Final = tuple(word.replace("\\", "") for word in _words(_SEPARATORS))
MOBILE: Final = tuple(_words(_MOBILE))
DEVICES: Final = tuple(_words(_DEVICES))
REGARDS: Final = frozenset(_words(_REGARDS))
opens = re.compile(rf"(?:{_alternatives(_OPENING)})[\s,]", re.IGNORECASE).match
_WROTE_ENDINGS: Final = tuple(_words(_WROTE.replace("\\", "")))
_wrote = re.compile(rf"(?<!\w)(?:{_alternatives(_WROTE)})(?!\w)", re.IGNORECASE).search


def says_wrote(line: str) -> bool:
    """Return True if a line contains a word for "wrote"."""
    return _wrote(line) is not None or any(word in line for word in _WROTE_INSIDE)


def ends_with_wrote(line: str) -> bool:
    """Return True if the last word of a line is one for "wrote", with or without a colon."""
    ending = line[-24:].lower().rstrip(" \t\xa0:：")
    if ending.endswith(_WROTE_INSIDE):
        return True
    if not ending.endswith(_WROTE_ENDINGS):
        return False
    words = (word for word in _WROTE_ENDINGS if ending.endswith(word))
    return any(not ending[: -len(word)][-1:].isalnum() for word in words)
