"""Words by which bounces, delay warnings and automatic replies are recognised, in the languages of their software.

All are in lower case and compared with lower-case text. Used by `bounce_texts.py` and `delivery_reports.py`.
"""

import re
from collections.abc import Iterable
from typing import Final


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(word) for word in words))


FAILURE: Final = _any_of([
    "undeliver", "not deliver", "not be deliver", "wasn't able to deliver", "unable to deliver", "able to deliver", "could not deliver",
    "couldn't be deliver", "cannot deliver", "cannot be deliver", "can't be deliver", "delivery fail", "failed to deliver", "delivery error", "delivery problem",
    "failed delivery", "delivery has failed", "failure notice", "failure delivery", "delivery failure", "failed recipient", "did not reach", "hasn't been deliver", "was not delivered",
    "returned mail", "returned to sender", "mail returned", "returned e-mail", "permanent error", "fatal error", "permanent fail", "could not send", "couldn't be sent",
    "user unknown", "unknown user", "no such user", "mail failure", "nondeliver", "non-deliver", "delivery status", "rejected your message", "has been rejected", "was rejected", "message blocked",
    "mail system error", "mail system problem", "message could not", "not found in directory", "mailbox unavailable", "bounced", "not delivered", "transaction failed", "unknown address",
    "could not be reached", "address not found", "address rejected", "invalid address", "invalid recipient", "invalid final delivery", "error in processing", "problem delivering", "unrouteable",
    "mailbox is full", "mailbox full", "over quota", "does not exist", "doesn't exist", "is not known", "was not accepted", "no longer", "delivery to the following", "problem with your message",
    "unzustell", "nicht zugestellt", "zustellung", "nicht ausgeliefert", "konnte nicht", "unbekannter empf", "nicht erreicht", "zurückgeschickt", "fehlgeschlagen",
    "n'a pas pu", "n'a pu être", "n'ont pas pu", "non remis", "échec", "echec", "non distribu", "n'a pas été", "n'ont pu", "retour à l'exp", "impossible de", "pas être remis", "erreur",
    "no se pudo", "no se ha podido", "no ha podido", "no pudo ser", "no se puede entregar", "no entregado", "fallo en la entrega", "error de entrega", "imposible entregar", "no ha sido entregado", "devuelto",
    "non è stato possibile", "impossibile", "mancata consegna", "non consegnat", "recapito", "non è stato recapitato", "errore", "consegna", "non recapitabile",
    "não foi possível", "não pôde", "não pode ser", "nao foi possivel", "não entregue", "falha na entrega", "devolvid",
    "niet bezorgd", "niet worden bezorgd", "niet afgeleverd", "kon niet", "kan niet worden", "onbestelbaar", "bezorgen",
    "nie można dostarczyć", "nie została dostarczona", "nie powiod", "niedostarcz", "nie mogła zostać", "nie dostarczon", "nie udało",
    "не удалось", "не доставлен", "не может быть доставлен", "не было доставлено", "невозможно доставить", "недоставлен", "ошибка доставки", "не может доставить", "сбой",
    "配信できま", "届けられ", "送信できま", "配送できま", "届きませ", "配信不能", "エラー", "送れませ", "失敗", "配達でき", "返送",
    "无法投递", "退信", "无法送达", "投递失败", "發送失敗", "发送失败", "無法傳遞", "无法传递", "未能送达", "無法投遞", "退回", "未送達", "被退",
    "doručen", "kézbesít", "iletilemedi", "teslim edilemedi", "kunde inte levereras", "kunne ikke leveres", "ei voitu toimittaa", "nu a putut fi", "전송", "반송", "не вдалося", "gick inte att leverera",
])  # fmt: skip

FAILURE_SUBJECT: Final = _any_of([
    "undeliver", "deliver", "failure", "failed", "returned mail", "mail status", "returned to sender", "bounce", "mailer-daemon", "error", "non remis", "unzustell", "zustell", "problem", "nachricht",
    "non distribu", "échec", "echec", "no entregado", "devuelto", "entrega", "mancata", "consegna", "errore", "não entregue", "onbestelbaar", "niet bezorgd", "niedostarcz", "zwrot", "nie doręczono",
    "недоставлен", "ошибка", "не доставлен", "配信", "エラー", "届", "退信", "失败", "失敗", "退回", "reject", "unknown", "notification", "message status", "warning", "fehl",
])  # fmt: skip

# The server goes on trying. Said of a message that is given up, too, but never in these words.
DELAY: Final = _any_of([
    "warning message only", "do not need to resend", "don't need to resend", "not need to be resent", "will continue to try", "will keep trying", "will be retried", "continue trying", "keep trying", "still trying", "will try again",
    "will retry", "not yet been delivered", "been delayed", "delivery is delayed", "delivery delayed", "delayed mail", "delivery delay", "still being attempted", "has not been delivered yet", "no action is required on your part",
    "could not be delivered for the last", "temporarily undeliver", "delivery attempts will continue", "further attempts", "retry for",
    "verzögert", "weiterhin versucht", "versucht es weiter", "weitere zustellversuche", "noch nicht zugestellt", "retardé", "en attente de", "nouvelles tentatives", "continuera", "retrasado", "se seguirá intentando", "seguiremos intentando", "demora",
    "ritardo", "ulteriori tentativi", "non è ancora stato", "atrasad", "continuará tentando", "vertraagd", "nog niet bezorgd", "blijft proberen", "opóźnion", "ponowi", "kolejne próby",
    "задерж", "попытки будут продолжены", "продолжит попытки", "отложена", "遅延", "再送を試み", "まだ配信され", "延迟", "继续尝试", "將繼續", "将继续", "延遲",
])  # fmt: skip

GIVEN_UP: Final = _any_of([
    "given up", "giving up", "gave up", "no longer attempt", "will not be retried", "no further", "not going to try again", "permanent error", "permanent fail", "fatal error", "too long", "expired", "retry time", "retry timeout",
    "endgültig", "définiti", "definitiv", "could not be delivered to one or more", "been returned", "will not retry", "over the retry", "won't try", "not be delivered within",
])  # fmt: skip

AUTO_REPLY_SUBJECT: Final = _any_of([
    "out of office", "out of the office", "autoreply", "auto reply", "auto-reply", "automatic reply", "autoresponse", "auto-response", "auto response", "automated reply", "automated response", "vacation", "away from", "on leave", "on holiday",
    "automatische antwort", "abwesen", "auto-antwort", "autoantwort", "urlaub", "nicht im büro", "réponse automatique", "reponse automatique", "absence", "absent", "en congé",
    "respuesta automática", "respuesta automatica", "fuera de la oficina", "fuera de oficina", "ausente", "vacaciones", "risposta automatica", "fuori sede", "fuori ufficio", "assente", "assenza",
    "resposta automática", "resposta automatica", "ausência", "fora do escritório", "férias", "automatisch antwoord", "automatisch bericht", "afwezig", "niet aanwezig", "autoodpowiedź", "automatyczna odpowiedź", "odpowiedź automatyczna", "poza biurem", "nieobecn", "urlop",
    "автоответ", "автоматический ответ", "в отпуске", "отсутств", "自動応答", "自動返信", "不在", "自动回复", "自動回覆", "自动答复", "外出", "休假", "automatiskt svar", "autosvar", "frånvaro", "fravær", "poissa", "otomatik", "automatická odpověď", "부재중", "자동",
])  # fmt: skip

CHALLENGE: Final = _any_of([
    "boxbe", "spamarrest", "spam arrest", "choicemail", "mailblocks", "sender verification", "verify your email to reach", "confirm that you are", "confirm your message", "confirm your identity", "your message requires verification",
    "requires confirmation", "awaiting verification", "waiting for your approval", "antispam uol", "please confirm (conf#", "tmda", "challenge", "click the link below to deliver", "click here to deliver", "click on the link to deliver",
    "human verification", "prove that you are", "authenticate your e-mail", "whitelist yourself", "add yourself to", "please verify yourself", "message is being held until you", "bitte bestätigen sie ihre nachricht", "confirmez votre message", "confirme su mensaje", "подтвердите отправку",
])  # fmt: skip

# Local parts of senders that write bounces.
DAEMONS: Final = re.compile(
    r"^(?:.*[-_.+])?(?:mailer[-_.]?daemon|postmaster|mail[-_.]?daemon|mdaemon|daemon|bounces?|root|mailadmin|mail-?deliver.*|mail|"
    r"delivery.*|microsoftexchange.*|amavis|smtp|system|administrator|admin|postfix|no-?reply|complaints|mailsystem|nobody|ses-bounce)(?:[-_.+].*)?$"
)

# A line that ends the notice: the returned message or its header follows.
RETURNED_MARK: Final = re.compile(
    r"^[ \t>|*#~]*(?:[-=_*+]{2,}|<{3,}|\[)?[ \t]*(?:"
    r"(?:this|below this line|below|attached|enclosed|here|what follows)\b.{0,40}\b(?:copy of|original|header)\b.{0,80}"
    r"|(?:the )?(?:header|body|text|content|start|beginning|first \d+ lines?)s?\b.{0,40}\b(?:original|your|returned|the|sent|failed|undelivered)?[ \t]*(?:message|mail|e-mail|letter)\b.{0,60}"
    r"|(?:the )?(?:your |our |full |first |partial )?(?:original|unsent|returned|undelivered|rejected|failed|bounced|forwarded)[ \t]+(?:message|mail|e-mail|header|text|letter)s?\b.{0,40}"
    r"|(?:message|mail)[ \t]+(?:header|text|contents?|body)s?\b.{0,30}"
    r"|the following is (?:a copy of )?(?:the|your)\b.{0,60}|your (?:original )?(?:message|mail) (?:follows|is below|reads).{0,40}|included is a copy\b.{0,60}|message follows.{0,10}"
    r"|(?:original(?:nachricht|-?mail|-?text)|ursprüngliche (?:nachricht|mail)|kopie (?:der|ihrer|your)|es folgt|im folgenden)\b.{0,80}"
    r"|(?:message (?:d'origine|original|initial|renvoyé)|copie (?:du|de votre)|en-têtes? )\b.{0,60}|(?:mensaje original|copia (?:del|de su|da sua)|messaggio originale|mensagem original|cabeceras?|oorspronkelijk bericht|origineel bericht|kopie van|oryginalna|treść|kopia)\b.{0,60}"
    r"|(?:исходное (?:сообщение|письмо)|оригинальное|текст (?:письма|сообщения)|копия|заголовки).{0,60}|(?:元のメッセージ|元のメール|オリジナル|原始邮件|原始郵件|原邮件|原信件|邮件原文|以下は).{0,40}"
    r")[ \t]*:?[ \t]*[-=_*+>\]]*[ \t]*$",
    re.IGNORECASE,
)
