"""Gives the site of mkdocs the layout of the repository, so that links hold in both.

mkdocs takes pages from one folder, and ours lie in three. What they link to, such as a
spec, is copied along.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("*.md", "docs/*.md", "benchmarks/**/*.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the pages and what they link to in the place of the files in docs/."""
    pages = [page for pattern in PAGES for page in ROOT.glob(pattern)]
    linked = [target for page in pages for target in _linked(page)]
    ours = [
        File.generated(
            config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)
        )
        for path in sorted({*pages, *linked})
    ]
    theme = [file for file in files if not _in_docs(file, config)]
    return Files([*theme, *ours])


def _linked(page: Path) -> list[Path]:
    """The files of this repository that a page links to."""
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    paths = [(page.parent / target).resolve() for target in targets]
    return [path for path in paths if path.is_file()]


def _in_docs(file: File, config: MkDocsConfig) -> bool:
    return file.src_dir is not None and Path(file.src_dir) == Path(config.docs_dir)
