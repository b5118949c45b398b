"""Sanitised HTML: what attacks leave behind, judged by another parser; what newsletters keep; limits."""

import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.mail.html import sanitise
from engine.mail.html_limits import MAX_ATTRIBUTES, MAX_HTML, MAX_NESTING, HtmlLimit
from tests.mail.drafts import THOROUGH

ACTIVE = {
    "script", "style", "iframe", "object", "embed", "form", "input", "button", "select", "textarea", "link", "meta",
    "base", "svg", "math", "frame", "frameset", "template", "video", "audio", "source", "picture", "portal", "noscript",
    "title", "body", "html", "head", "xmp", "plaintext", "applet", "marquee", "area", "map",
}  # fmt: skip
LOADING = {"srcset", "background", "poster", "action", "formaction", "data", "ping", "longdesc", "lowsrc", "dynsrc",
           "codebase", "classid", "manifest", "profile", "usemap", "cite", "xlink:href", "xmlns", "class", "id", "name",
           "for", "is", "slot", "part", "srcdoc", "http-equiv", "target", "contenteditable", "autofocus", "tabindex",
           "accesskey"}  # fmt: skip


class Judge(HTMLParser):
    """Collect whatever of a sanitised fragment could act or load something."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.links: list[dict[str, str]] = []
        self.images: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ACTIVE or ":" in tag:
            self.faults.append(tag)
        for name, value in attrs:
            self.judge(tag, name, value or "")
        if tag == "a":
            self.links.append({name: value or "" for name, value in attrs})

    def judge(self, tag: str, name: str, value: str) -> None:
        plain = re.sub(r"[\x00-\x20]+", "", value).lower()
        if name in {"alt", "title"}:  # shown as text
            return
        if name.startswith("on") or name in LOADING or "javascript:" in plain or "vbscript:" in plain:
            self.faults.append(f"{tag} {name}={value}")
        elif name == "src":
            self.images.append(value)
            if not plain.startswith(("cid:", "data:image/")) or "svg" in plain:
                self.faults.append(f"{tag} src={value}")
        elif name == "href" and not plain.startswith(("http://", "https://", "mailto:", "tel:")):
            self.faults.append(f"{tag} href={value}")
        elif name == "style" and re.search(r"url|import|expression|image-set|behaviou?r|binding|position|\\|@", plain):
            self.faults.append(f"{tag} style={value}")

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"comment {data}")

    def handle_decl(self, decl: str) -> None:
        self.faults.append(decl)

    def handle_pi(self, data: str) -> None:
        self.faults.append(data)


def judged(html: str) -> Judge:
    judge = Judge()
    judge.feed(html)
    judge.close()
    return judge


def clean(html: str) -> str:
    found = sanitise(html)
    assert found.html is not None, found.omitted
    return found.html


ATTACKS = [
    "<script>alert(1)</script>", "<SCRIPT SRC=//x.test/a.js></SCRIPT>", "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<script/x>alert(1)</script >", "<script\x0c>alert(1)</script>", "<<script>alert(1)//<</script>",
    "<img src=x onerror=alert(1)>", "<img/src=x/onerror=alert(1)>", "<img src='x'onerror='alert(1)'>",
    '<img src="x` `<script>alert(1)</script>"` `>', "<img src=x:alert(alt) onerror=eval(src) alt=0>",
    "<img onerror=alert(1) src", "<img src=`javascript:alert(1)`>", "<img src=javascript:alert(1)>",
    "<img src=' &#14; javascript:alert(1)'>", "<img src=&#106;&#97;&#118;&#97;&#115;&#99;&#114;&#105;&#112;&#116;:a>",
    "<img dynsrc=javascript:alert(1) lowsrc=//x.test>", "<img src=//x.test/pixel>", "<img src=http://x.test/p.gif>",
    "<img src=/relative.png>", "<img srcset='//x.test/a 2x' sizes=100vw>", "<img src=CID:a srcset=//x.test/b>",
    "<img src=data:image/svg+xml;base64,PHN2Zz4=>", "<img src='data:image/png,<svg onload=alert(1)>'>",
    "<img src='data:text/html;base64,PHNjcmlwdD4='>", "<img src=DATA:image/png;base64,AAAA;x=//x.test>",
    "<img src=https:cid:a>", "<img src='\x01https://x.test'>", "<img src=blob:https://x.test/a>",
    "<a href=javascript:alert(1)>x</a>", "<a href=' java\tscript:alert(1)'>x</a>", "<a href=jav&#x0A;ascript:a>x</a>",
    "<a href=&#1;javascript:alert(1)>x</a>", "<a href='javascript&colon;alert(1)'>x</a>", "<a href=//x.test>x</a>",
    "<a href=data:text/html,<script>alert(1)</script>>x</a>", "<a href=data:image/png;base64,AAAA>x</a>",
    "<a href=vbscript:msgbox(1)>x</a>", "<a href=feed:javascript:alert(1)>x</a>", "<a href=file:///etc/passwd>x</a>",
    "<a href=cid:part>x</a>", "<a href='view-source:javascript:a'>x</a>", "<a href='#' onclick=alert(1)>x</a>",
    "<a href='http://x.test' target=_blank ping=//y.test rel=opener name=x id=y class=z>x</a>",
    "<a xlink:href=javascript:alert(1)>x</a>", "<a href=\"\u2028javascript:alert(1)\">x</a>",
    "<svg onload=alert(1)>", "<svg><script>alert(1)</script></svg>", "<svg><a xlink:href=javascript:a><text>x</svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>", "<svg><animate attributeName=href values=javascript:a>",
    "<svg></p><style><a id=\"</style><img src=1 onerror=alert(1)>\">", "<svg><use href=//x.test/a.svg#b></svg>",
    "<svg><foreignObject><iframe srcdoc='<script>a</script>'></foreignObject></svg>", "<svg><image href=//x.test/a>",
    "<svg><![CDATA[><img src=x onerror=alert(1)>]]></svg>", "<svg><desc><![CDATA[</desc><script>alert(1)</script>]]>",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=alert(1)&gt;\">",
    "<math><annotation-xml encoding=text/html><script>alert(1)</script></annotation-xml></math>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)></style></mglyph></form>",
    "<math href=javascript:alert(1)>x</math>", "<math><mi//xlink:href=\"data:x,<script>alert(4)</script>\">",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\"></noscript>",
    "<noembed><img title=\"</noembed><img src onerror=alert(1)>\"></noembed>",
    "<xmp><p title=\"</xmp><img src onerror=a>\">",
    "<iframe src=javascript:alert(1)></iframe>", "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<iframe><img title=\"</iframe><img src onerror=alert(1)>\"></iframe>", "<frameset onload=a><frame src=//x.test>",
    "<textarea><img title=\"</textarea><img src onerror=alert(1)>\"></textarea>",
    "<title><img title=\"</title><img src onerror=a>\">",
    "<style>@import '//x.test/a.css';</style>", "<style><!--</style><script>alert(1)//--></script>",
    "<style>*{background:url(//x.test)}</style>", "<link rel=stylesheet href=//x.test/a.css>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>", "<base href=//x.test/>", "<object data=//x.test>",
    "<embed src=//x.test/a.swf>", "<applet code=A archive=//x.test>", "<bgsound src=//x.test/a.wav>",
    "<form action=//x.test><input name=a onfocus=alert(1) autofocus><button formaction=javascript:a>x</form>",
    "<isindex action=javascript:alert(1) type=image>", "<input type=image src=//x.test>",
    "<keygen autofocus onfocus=a>",
    "<video poster=//x.test><source src=//x.test onerror=alert(1)></video>", "<audio src=//x.test onloadstart=a>",
    "<details open ontoggle=alert(1)><summary>x</summary></details>", "<marquee onstart=alert(1)>x</marquee>",
    "<body background=//x.test onload=alert(1)>", "<table background=//x.test><td background=//y.test>x</table>",
    "<div style='background:url(//x.test/a)'>x</div>", "<div style='background:\\75rl(//x.test)'>x</div>",
    "<div style='background-image:image-set(\"//x.test/a\" 1x)'>x</div>",
    "<div style='width:expression(alert(1))'>x</div>",
    "<div style='background:u/**/rl(//x.test)'>x</div>", "<div style='-moz-binding:url(//x.test#a)'>x</div>",
    "<div style='behavior:url(#default#time2)'>x</div>", "<div style='position:fixed;top:0;left:0;width:100%'>x</div>",
    "<div style='color:red;}@import \"//x.test\";a{b:c'>x</div>",
    "<div style='font-family:\"a;b:url(//x.test)\"'>x</div>",
    "<div style='list-style:url(//x.test)'>x</div>", "<div style='cursor:url(//x.test),auto'>x</div>",
    "<div style='content:url(//x.test)'>x</div>", "<div style='color:var(--x,url(//x.test))'>x</div>",
    "<div style=\"background:&#117;rl('//x.test')\">x</div>", "<div style='margin:-9999px'>x</div>",
    "<!--[if gte IE 4]><script>alert(1)</script><![endif]-->", "<!--><img src=x onerror=alert(1)>-->",
    "<!--!><img src=x onerror=alert(1)>--!>", "<! foo=\"><script>alert(1)</script>\">",
    "<?xml-stylesheet href=//x.test?>",
    "</ foo=\"><script>alert(1)</script>\">", "<![CDATA[<script>alert(1)</script>]]>",
    "<% foo><x foo=\"%><script>a</script>\">",
    "<p id=getElementById name=cookie class=console>x</p>", "<img name=body id=x><a id=x name=y href=http://z.test>",
    "<template><img src=x onerror=alert(1)></template>", "<select><template><img src onerror=a></template></select>",
    "<option><style></option></select><img src=1 onerror=alert(1)></style>", "<plaintext><img src=x onerror=alert(1)>",
    "<x-custom onclick=alert(1) is=y>x</x-custom>", "<o:p onload=alert(1)>x</o:p>", "<v:vmlframe src=//x.test/a.xml>",
    "<p/onclick=alert(1)//title='>x", "<p title='\"><img src=x onerror=alert(1)>'>x</p>",
    "<p \x00onclick=alert(1)>x</p>",
    "<img\x0bsrc=x\x0bonerror=alert(1)>", "<a href=\"x:\x00javascript:a\">x</a>", "\ufeff<script>alert(1)</script>",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-", "<map name=m><area href=javascript:a></map><img usemap=#m>",
    "<table><tr><td><script>alert(1)</script></table>", "<table><img src=x onerror=alert(1)><svg></table>",
    "<q cite=javascript:alert(1)>x</q>", "<blockquote cite=//x.test>x</blockquote>", "<del cite=javascript:a>x</del>",
    "<div contenteditable tabindex=1 onfocus=a accesskey=x>x</div>", "<slot name=x onslotchange=a>",
    "<dialog open oncancel=a>",
    "<picture><source srcset=//x.test><img src=cid:a></picture>", "<track src=//x.test>", "<portal src=//x.test>",
]  # fmt: skip


@pytest.mark.parametrize("html", ATTACKS)
def test_nothing_of_an_attack_can_act_or_load(html: str) -> None:
    for text in (html, f"<p>{html}</p>after", f"<table><tr><td>{html}", html * 3):
        once = clean(text)
        assert judged(once).faults == []
        assert judged(clean(once)).faults == []


_pieces = st.sampled_from([piece for html in ATTACKS for piece in re.findall(r"<[^>]*>?|[^<]+", html)])


@THOROUGH
@given(st.lists(_pieces, max_size=12).map("".join))
def test_no_mixture_of_attacks_can_act_or_load(html: str) -> None:
    found = sanitise(html).html

    assert found is None or judged(found).faults == []


def test_a_newsletter_keeps_its_looks() -> None:
    html = (
        '<table width="600" cellpadding="0" bgcolor="#ffffff" style="border-collapse: collapse; mso-table-lspace:0pt">'
        '<tr><td align="center" style="font-family:\'Segoe UI\',Arial,sans-serif;font-size:14px;color:rgb(1, 2, 3)">'
        '<a href="https://shop.test/a?b=c&amp;d=e" style="color:#fff">Shop</a>'
        '<img src="cid:logo@x" width="10" alt="Logo">'
        '<font color="red" face="Arial">now</font></td></tr></table>'
    )

    assert clean(html) == (
        '<table width="600" cellpadding="0" bgcolor="#ffffff" style="border-collapse:collapse">'
        '<tbody><tr><td align="center" style="font-family:\'Segoe UI\',Arial,sans-serif;font-size:14px;'
        'color:rgb(1, 2, 3)"><a href="https://shop.test/a?b=c&amp;d=e" style="color:#fff"'
        ' rel="noopener noreferrer nofollow">Shop</a><img src="cid:logo@x" width="10" alt="Logo">'
        '<font color="red" face="Arial">now</font></td></tr></tbody></table>'
    )


def test_links_lead_out_without_telling_from_where() -> None:
    (link,) = judged(clean("<a href='HTTPS://x.test/a' rel=opener target=_top>x</a>")).links

    assert link == {"href": "HTTPS://x.test/a", "rel": "noopener noreferrer nofollow"}


def test_images_within_the_message_are_shown() -> None:
    html = "<img src=cid:a@b><img src='data:image/png;base64,AAAA'><img src='data:image/gif;base64,R0lG\nODlh'>"

    assert judged(clean(html)).images == ["cid:a@b", "data:image/png;base64,AAAA", "data:image/gif;base64,R0lGODlh"]


BEYOND: list[tuple[str, HtmlLimit]] = [
    ("a" * (MAX_HTML + 1), HtmlLimit.SIZE),
    ("<div>" * (MAX_NESTING + 1), HtmlLimit.NESTING),
    ("<form><table></form></table></form>" * 3_000, HtmlLimit.NESTING),  # the form stays open in a browser
    ("<span><div></span></div>" * 3_000, HtmlLimit.NESTING),
    ("<li><dd>" * 2_000, HtmlLimit.NESTING),
    ("<div>" * 1_000 + ("<object>" + "</div>" * 1_000 + "</object>" + "<div>" * 1_000) * 3, HtmlLimit.NESTING),
    ("<select><div>" * 2_000, HtmlLimit.NESTING),
    ("<svg>" + "a" * 200_000, HtmlLimit.FORMATTING),
    ("<p " + " ".join(f"a{number}" for number in range(MAX_ATTRIBUTES + 1)) + ">", HtmlLimit.ATTRIBUTES),
    ("".join(f"<p><b a={number}></p>" for number in range(1_500)), HtmlLimit.FORMATTING),
    ("".join(f"<table><b a={number}><td></b></table>" for number in range(1_500)), HtmlLimit.FORMATTING),
    ("&" * 500_000, HtmlLimit.FORMATTING),
    ("<p title='" + "&amp;" * 100_000 + "'>", HtmlLimit.FORMATTING),
]  # fmt: skip


@pytest.mark.parametrize("html, limit", BEYOND, ids=[html[:30] for html, _ in BEYOND])  # noqa: PT006
def test_documents_beyond_a_limit_are_omitted_with_the_reason(html: str, limit: HtmlLimit) -> None:
    began = time.process_time()

    found = sanitise(html)

    assert (found.html, found.omitted) == (None, limit)
    assert time.process_time() - began < 1.0  # measured: at most 0.06 s


WITHIN = [
    "<div>" * MAX_NESTING,
    "<p>one" * 100_000,
    "<ul>" + "<li>one" * 50_000,
    "<table>" + "<tr><td><font color=red><b>x" * 20_000,
    "<table><tr><td>" * 600,
    "<a name=x>text</a>" * 40_000,
    "<a name=x>text " * 10_000,
    "x&nbsp;" * 20_000,
    "<p " + " ".join(f"a{number}" for number in range(MAX_ATTRIBUTES)) + ">",
    "<!--" * 200_000,
    "<a b='" * 100_000,
    "<" * 500_000,
    "<br>" * 200_000,
    "<p style='" + "color:" * 100_000 + "'>",
]


@pytest.mark.properties
@pytest.mark.parametrize("html", WITHIN, ids=[html[:30] for html in WITHIN])
def test_long_documents_are_sanitised_in_linear_time(html: str) -> None:
    began = time.process_time()

    clean(html)

    assert time.process_time() - began < 3.0  # measured: at most 0.6 s


def _soup() -> Iterator[str]:
    for name in ("div", "p", "b", "a", "font", "span", "table", "td", "tr", "caption", "li", "dd", "ul", "h1", "h2",
                 "form", "button", "object", "option", "nobr", "center", "svg", "select", "template"):  # fmt: skip
        yield f"<{name} x={len(name)}>"
        yield f"</{name}>"
    yield from ("text", "&amp;", "<br>", "<!-- -->", "<style>", "</style>")


@pytest.mark.exhaustive
@THOROUGH
@given(st.lists(st.sampled_from(list(_soup())), min_size=1, max_size=8).map("".join))
def test_no_short_pattern_evades_the_limits(pattern: str) -> None:
    html = "".join(
        piece.replace("x=", f"x{number}=") for number, piece in enumerate([pattern] * (60_000 // len(pattern)))
    )
    began = time.process_time()

    found = sanitise(html).html

    assert time.process_time() - began < 3.0  # measured: at most 0.3 s
    assert len(found or "") < 4_000_000
