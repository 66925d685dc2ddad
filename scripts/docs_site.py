"""A hook of MkDocs: pages from outside docs/, and links that hold both on the site and on a code host.

README.md and its like become pages of the site. Links between all pages are relative to the repository's files, as a code
host reads them; here they are made relative to the site. A link to a file that the site does not have keeps its text only.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files outside docs/ that are pages, with their names on the site."""
_LINK = re.compile(r'\[(?P<text>[^\]\[]*)\]\((?P<link>[^)\s]+)\)|(?<=src=")(?P<image>[^"]+)')
log = logging.getLogger(f"mkdocs.hooks.{__name__}")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Headings get the anchors that they have on a code host."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside docs/."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links as they are on the site."""
    name = page.file.src_uri
    sources = {site: source for source, site in PAGES.items()}
    return relink(markdown, sources.get(name, f"docs/{name}"), name)


def on_post_build(config: MkDocsConfig) -> None:
    """The address results/ leads to the page of results."""
    redirect = (
        '<!doctype html><title>Results</title><meta http-equiv="refresh" content="0; url=../results.html">\n'
    )
    Path(config.site_dir, "results", "index.html").write_text(redirect, encoding="utf-8")


def relink(markdown: str, source: str, name: str) -> str:
    """The text of the file `source` with links for the page `name`; warns of links to nothing."""

    def replaced(match: re.Match[str]) -> str:
        link = match["image"] or match["link"]
        path, hash_sign, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        on_site = PAGES.get(target) or target.removeprefix("docs/") * target.startswith("docs/")
        if not (ROOT / target).exists():
            log.warning("%s links to %s, which is not there", source, link)
        elif on_site and (ROOT / target).is_file():
            new = posixpath.relpath(on_site, posixpath.dirname(name) or ".") + hash_sign + anchor
            return match[0].replace(link, new) if match["image"] else f"[{match['text']}]({new})"
        return match["text"] or match[0]

    return _LINK.sub(replaced, markdown)
