"""What every HTML page of a report has: one file with its style and pictures inside, headline numbers, figures."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from io import BytesIO
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

from gcab.report.plotting import save
from gcab.runs.files import write_bytes
from gcab.version import VERSION

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 250_000  # bytes; a denser figure is smaller as pixels


class Opening(NamedTuple):
    """What a page begins with."""

    kicker: str
    title: str
    lead: str  # the result in one paragraph
    warnings: Sequence[str]  # paragraphs of HTML
    cards: Sequence[str]


def write_page(out: Path, opening: Opening, template: str, sections: Mapping[str, str]) -> Path:
    """Put what a page says into the frame that all pages share, and write it."""
    page = Template(_read("page.html")).substitute(
        style=style(),
        kicker=escape(opening.kicker),
        title=escape(opening.title),
        content=content(opening, template, sections),
        date=date_of(datetime.now(UTC).timestamp()),
        version=VERSION,
    )
    write_bytes(out, page.encode())
    return out


def content(opening: Opening, template: str, sections: Mapping[str, str]) -> str:
    """What a page says below its title, as HTML: the result, warnings, headline numbers, and a template of sections."""
    return Template(_read("content.html")).substitute(
        lead=escape(opening.lead),
        warnings="\n".join(f'<p class="warning">{text}</p>' for text in opening.warnings),
        cards="\n".join(opening.cards),
        sections=Template(_read(template)).substitute(sections),
    )


def style() -> str:
    """The style sheet of all pages."""
    return _read("style.css")


def _read(name: str) -> str:
    return resources.files("gcab.report").joinpath(name).read_text("utf-8")


def card(title: str, number: str, sentence: str, beside: str = "") -> str:
    """A number to remember, as HTML, and what it is."""
    return (
        f'<div class="card"><h2>{escape(title)}</h2><div class="number">{number}</div>'
        f"{beside}<p>{escape(capitalised(sentence))}</p></div>"
    )


def figure_section(name: str, title: str, caption: str, figure: "Figure") -> str:
    """A figure inside the page, with its title and caption."""
    picture, kind = BytesIO(), "svg"
    save(figure, picture, "svg")
    if picture.tell() > LARGEST_SVG:
        picture, kind = BytesIO(), "png"
        save(figure, picture, "png")
    media = {"svg": "image/svg+xml", "png": "image/png"}[kind]
    data = b64encode(picture.getvalue()).decode()
    width = int(96 * figure.get_figwidth())  # CSS pixels: never enlarged beyond its own size
    return (
        f'<section id="{name}"><h2>{escape(title)}</h2><figure>'
        f'<img alt="{escape(title)}" width="{width}" src="data:{media};base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure></section>"
    )


def capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def date_of(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
