"""Hooks of the documentation site: pages that lie beside docs/ join it, and every link keeps its target.

In the repository the documents link to each other as files; here a file docs/X is the page X, README.md the first page,
and any other file keeps its path. A link to something that is no page becomes plain text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "results/**/*.md", "results/**/*.png")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
# Code, in which nothing is a link, and links, which may have code for their text: whichever comes first.
PIECE = re.compile(r"^```.*?^```$|(?P<link>!?\[(?:[^\]`]|`[^`\n]*`)*\]\([^)\s]*\))|`[^`\n]+`", re.DOTALL | re.MULTILINE)
FETCHED = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//[^"'> ]+""")


def site_path(path: str) -> str:
    """Where a file of the repository is in the site."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def repository_path(path: str) -> str:
    """Where a page of the site is in the repository."""
    if path == "index.md":
        return "README.md"
    return path if (ROOT / path).exists() else f"docs/{path}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for pattern in BESIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = site_path(path.relative_to(ROOT).as_posix())
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    here = page.file.src_uri
    folder = posixpath.dirname(repository_path(here))

    def moved(match: re.Match[str]) -> str:
        image, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or re.match(r"\w+:", target):
            return match[0]
        path = site_path(posixpath.normpath(posixpath.join(folder, target)))
        if files.get_file_from_path(path) is None:
            return text
        return f"{image}[{text}]({posixpath.relpath(path, posixpath.dirname(here) or '.')}{anchor})"

    return PIECE.sub(lambda piece: LINK.sub(moved, piece[0]) if piece["link"] else piece[0], markdown)


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """A page that fetches anything from the net would not be readable offline."""
    for page in Path(config.site_dir).rglob("*.html"):
        if found := FETCHED.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page} fetches something: {found[0]}")
