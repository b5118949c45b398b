"""Build the whole documentation site: every page as HTML and Markdown, the lists for programs, the search index.

One process builds it once, when the first page is requested: 0.9 s of CPU, in a thread.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from msgspec import Struct

from api.docs import reference
from api.docs.error_texts import ERROR_TEXTS
from api.docs.guides import SECTIONS, Guide, guides
from api.docs.layout import NavigationEntry, NavigationGroup, PageParts, SiteFrame
from api.docs.markdown import Heading, as_plain_markdown, render
from api.docs.schema_tables import SchemaReader
from api.docs.search_index import IndexedPage, IndexedSection, fields_of, index, prose
from api.http import service_addresses
from api.http.static_files import StaticFile
from engine.base.errors import REGISTRY, ErrorType
from engine.base.settings import Settings
from engine.base.version import with_command

FILES: Final = Path(__file__).parent / "files"
SCRIPTS: Final = Path(__file__).parent / "scripts"
RUNBOOKS: Final = Path(__file__).parents[2] / "ops" / "runbooks"  # beside the code in a checkout; else left out
DECISIONS: Final = RUNBOOKS.parent / "decisions"
DEPLOY: Final = RUNBOOKS.parent / "deploy"
CHANGELOG: Final = RUNBOOKS.parents[1] / "CHANGELOG.md"
FILES_PATH: Final = "/docs-files"
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_LINKS: Final = "Next"  # the last section of a guide names other pages, which have these words themselves
_SETTINGS: Final = "operating/settings"
_EXTERNAL: Final = ("http://", "https://", "mailto:", "#")
_AGENTS: Final = "Agents read and send with tools: the MCP server of this installation, with an API key, is at"
_SUMMARY: Final = "Transactional email that a team runs itself: send over HTTP or SMTP, and see what happened to it."


class SitePage(Struct, frozen=True):
    """One page before it is laid out. `path` is below `/docs`; empty for the first page."""

    path: str
    title: str
    description: str
    section: str
    html: str
    markdown: str
    headings: tuple[Heading, ...]
    script: str = ""
    names: dict[str, tuple[str, ...]] = {}  # identifiers by anchor that find a section of the reference


class DocumentationSite(Struct, frozen=True):
    """All answers of the site by their path below the public URL."""

    files: dict[str, StaticFile]


class SiteBuilder:
    """Builds the site for the addresses of one service from the OpenAPI document."""

    def __init__(self, document: bytes, settings: Settings) -> None:
        self._settings = settings
        self._base_url = settings.public_url.rstrip("/")
        self._prefix = urlsplit(self._base_url).path
        self._docs = f"{self._prefix}/docs"
        self._document: dict[str, Any] = orjson.loads(document)
        self._reader = SchemaReader(self._document["components"]["schemas"])

    def build(self) -> DocumentationSite:
        """Return all files of the site."""
        pages = list(self._pages())
        frame = self._frame(pages)
        files: dict[str, StaticFile] = {}
        for page in pages:
            address = self._address(page)
            twin = f"{address}.md" if page.path else f"{self._docs}/index.md"
            parts = PageParts(address, twin, page.title, page.description, page.html, page.headings, page.script)
            files[_served(page.path)] = StaticFile.of(frame.page(parts).encode(), ".html")
            markdown = f"# {page.title}\n\n{page.description}\n\n{page.markdown}"
            files[_served(f"{page.path or 'index'}.md")] = StaticFile.of(markdown.encode(), ".md")
        files |= self._lists(pages)
        files |= {_served(f"scripts/{path.name}"): _file(path) for path in sorted(SCRIPTS.glob("*.py"))}
        files |= {f"{FILES_PATH}/{path.name}": _file(path) for path in sorted(FILES.glob("*.*"))}
        files |= {_served(f"deploy/{name}"): StaticFile.of(path.read_bytes(), ".txt") for name, path in _deployment()}
        return DocumentationSite(files)

    def _address(self, page: SitePage) -> str:
        return f"{self._docs}/{page.path}".rstrip("/")

    def _missing(self) -> SitePage:
        text = f"Search for what you need, or start at the [first page]({self._docs}).\n"
        html = render(text, lambda target: target).html
        return SitePage(
            "not-found", "Page not found", "The address is wrong, or the page has moved.", "", html, text, ()
        )

    def _pages(self) -> Iterator[SitePage]:
        yield from map(self._guide, guides())
        yield self._errors()
        yield from self._reference()
        yield from self._changelog()
        yield from self._operating()
        yield self._missing()

    def _guide(self, guide: Guide) -> SitePage:
        text = service_addresses.filled(guide.text, self._settings)
        rendered = render(text, self._resolve)
        path = "" if guide.slug == "index" else guide.slug
        script = f"{guide.slug}.js" if (FILES / f"{guide.slug}.js").exists() else ""
        markdown = as_plain_markdown(text)
        return SitePage(
            path, guide.title, guide.description, guide.section, rendered.html, markdown, rendered.headings, script
        )

    def _resolve(self, target: str) -> str | None:
        return target if target.startswith(_EXTERNAL) else f"{self._docs}/{target}"

    def _errors(self) -> SitePage:
        lines = []
        for kind in ErrorType:
            known, explained = REGISTRY[kind], ERROR_TEXTS[kind]
            fields = ", ".join(f"`{field}`" for field in known.fields)
            lines += [
                f"## {kind.value}",
                "",
                f"HTTP {known.status}. {explained.meaning}",
                "",
                f"**What to do.** {explained.remedy}",
                "",
            ]
            lines += [f"**Retry?** {explained.again}", ""]
            lines += [f"**Fields.** {fields}", ""] if fields else []
        text = _ERRORS_TEXT + "\n".join(lines)
        rendered = render(text, self._resolve)
        return SitePage(
            "errors", "Errors", "Every type of error: its cause, what to do, and whether to retry.", "Reference",
            rendered.html, text, rendered.headings,
        )  # fmt: skip

    def _reference(self) -> Iterator[SitePage]:
        tags = reference.by_tag(self._document)
        intro = self._document["info"]["description"]
        links = "\n".join(
            f"- [{tag}](api/{reference.slug_of(tag)}): {len(operations)} operations" for tag, operations in tags.items()
        )
        programs = f"The same description for programs: [openapi.json]({self._base_url}/v1/openapi.json)."
        text = f"{links}\n\n{programs}\n\n{intro}"
        rendered = render(text, self._resolve)
        yield SitePage(
            "api", "API reference", "All operations, by subject.", "API", rendered.html, text, rendered.headings
        )
        for tag, operations in tags.items():
            page = reference.reference_page(operations, self._reader, self._base_url, self._docs)
            yield SitePage(
                path=f"api/{reference.slug_of(tag)}",
                title=tag,
                description=f"{len(operations)} operations, with parameters, responses and errors.",
                section="API",
                html=page.html,
                markdown=page.markdown,
                headings=page.headings,
                names=reference.names_of(operations),
            )
        if "webhooks" in self._document:
            yield self._webhook_events()

    def _webhook_events(self) -> SitePage:
        parts = [
            reference.event_section(name, described["post"], self._reader)
            for name, described in self._document["webhooks"].items()
        ]
        return SitePage(
            path="api/webhook-events",
            title="Webhook events",
            description="The body of each event that webhooks deliver.",
            section="API",
            html="\n".join(part.html for part in parts),
            markdown="\n".join(part.markdown for part in parts),
            headings=tuple(heading for part in parts for heading in part.headings),
        )

    def _changelog(self) -> Iterator[SitePage]:
        """Yield the changelog of a checkout, with its versions and dates as sections."""
        if CHANGELOG.is_file():
            text = _TITLE.sub("", with_command(CHANGELOG.read_text("utf-8")), count=1).strip() + "\n"
            rendered = render(text, _runbook_links(self._docs, CHANGELOG))
            yield SitePage(
                "changelog", "Changelog", "What changed in each version, with its date.", "Reference",
                rendered.html, text, rendered.headings,
            )  # fmt: skip

    def _operating(self) -> Iterator[SitePage]:
        for folder, place, section in ((RUNBOOKS, "operating", "Operating"), (DECISIONS, "decisions", "Decisions")):
            for path in sorted(folder.glob("*.md")):
                source = with_command(path.read_text("utf-8"))
                title = _TITLE.search(source)
                text = service_addresses.moved(_TITLE.sub("", source, count=1).strip() + "\n", self._settings)
                rendered = render(text, _runbook_links(self._docs, path))
                name = title[1] if title else path.stem
                yield SitePage(
                    f"{place}/{path.stem}", name, "For operators." if section == "Operating" else "A design decision.",
                    section, rendered.html, text, rendered.headings,
                )  # fmt: skip

    def _frame(self, pages: list[SitePage]) -> SiteFrame:
        groups = []
        for section in (*SECTIONS, "API", "Operating"):
            entries = tuple(
                NavigationEntry(self._address(page), page.title) for page in pages if page.section == section
            )
            if entries:
                groups.append(NavigationGroup(section, entries))
        return SiteFrame(self._docs, f"{self._prefix}{FILES_PATH}", f"{self._prefix}/console/", tuple(groups))

    def _lists(self, pages: list[SitePage]) -> dict[str, StaticFile]:
        shown = [page for page in pages if page.section not in {"Decisions", ""}]
        indexed = [
            IndexedPage(self._address(page), page.title, page.description, page.section, tuple(_sections(page)))
            for page in shown
        ]
        absolute = f"{self._base_url}/docs"
        lines = ["# Waybill", "", f"> {_SUMMARY}", ""]
        lines += [f"{_AGENTS} {self._base_url}/mcp", ""] if service_addresses.has_mcp() else []
        for section in dict.fromkeys(page.section for page in shown):
            lines += [f"## {section}", ""]
            lines += [
                f"- [{page.title}]({absolute}/{page.path or 'index'}.md): {page.description}"
                for page in shown
                if page.section == section
            ]
            lines.append("")
        whole = [f"# {page.title}\n\n{page.description}\n\n{page.markdown}" for page in shown]
        short = StaticFile.of("\n".join(lines).encode(), ".txt")
        full = StaticFile.of("\n\n".join(whole).encode(), ".txt")
        return {
            "/docs/search.json": StaticFile.of(index(indexed), ".json"),
            "/llms.txt": short, "/docs/llms.txt": short, "/llms-full.txt": full, "/docs/llms-full.txt": full,
        }  # fmt: skip


def _served(path: str) -> str:
    return f"/docs/{path}".rstrip("/")


def _deployment() -> Iterator[tuple[str, Path]]:
    """Yield the files of `ops/deploy` with their path below it, which the guides link to."""
    for path in sorted(DEPLOY.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            yield path.relative_to(DEPLOY).as_posix(), path


def _file(path: Path) -> StaticFile:
    return StaticFile.of(path.read_bytes(), path.suffix)


def _sections(page: SitePage) -> Iterator[IndexedSection]:
    """Return the page's beginning and each of its sections, for the search."""
    parts = re.split(r"^## +(.+)$", page.markdown, flags=re.MULTILINE)
    yield IndexedSection("", page.title, f"{page.description} {prose(parts[0])}")
    sections = [heading for heading in page.headings if heading.level == 2]
    listed = page.names or page.path == _SETTINGS
    for heading, text in zip(sections, parts[2::2], strict=True):
        if heading.text == _LINKS:
            continue
        names = page.names.get(heading.anchor, ())
        # Of an operation, the sentences before its sample: the rest repeats the names of its fields.
        told = text.split("```", 1)[0] if names else prose(text)
        yield IndexedSection(heading.anchor, heading.text, told, names, fields_of(text) if listed else ())


def _runbook_links(docs: str, path: Path) -> Any:
    """Return the function that turns a link between files into one between pages; None for files without a page."""

    def resolve(target: str) -> str | None:
        if target.startswith(_EXTERNAL):
            return target
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve()
        place = {RUNBOOKS: "operating", DECISIONS: "decisions"}.get(found.parent)
        if place is None or found.suffix != ".md" or not found.exists():
            return None
        return f"{docs}/{place}/{found.stem}" + (f"#{anchor}" if anchor else "")

    return resolve


_ERRORS_TEXT: Final = """\
Every error of the API has this body. `type` is stable, `message` says what is wrong and what to do, and `docs` links to
the type on this page. Some types have further fields.

```json
{"error": {"type": "domain_not_verified", "message": "…", "docs": "…/docs/errors#domain_not_verified", "domain": "…"}}
```

A refused send stores nothing and doesn't count towards a limit.

"""
