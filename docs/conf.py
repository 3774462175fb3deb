"""Configuration of the documentation site: ``make docs`` builds it into docs/_build/html, without a network."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from benchmarks import documents  # noqa: E402

from dprl import __version__  # noqa: E402

project, author, release = "dprl", "the authors of dprl", __version__
project_copyright = "the authors of dprl, Apache-2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"dprl {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ee", "color-brand-content": "#7cc4ee"},
}

myst_heading_anchors = 5
# notebooks are shown as they were stored; nothing is executed
nb_execution_mode = "off"

napoleon_use_ivar = True
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80

# pages of the repository that stand outside of docs/, by the names under which the site has them
OUTSIDE = {
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
    "benchmarks/results/README.md": "benchmarks",
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")


def write_generated_pages(app: Any, config: Any) -> None:
    """Write docs/generated: the command line's help, pages from outside of docs/, and the notebooks of examples/."""
    made = HERE / "generated"
    shutil.rmtree(made, ignore_errors=True)
    (made / "notebooks").mkdir(parents=True)
    (made / "command-line.md").write_text(documents.command_line(), encoding="utf-8")
    for path, name in OUTSIDE.items():
        text = with_links_of((ROOT / path).read_text(encoding="utf-8"), (ROOT / path).parent, made)
        (made / f"{name}.md").write_text(text, encoding="utf-8")
    notebooks = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
    for notebook in notebooks:
        shutil.copy(notebook, made / "notebooks")
    words = "# Notebooks\n\nThe notebooks of `examples/notebooks`, with the outputs that were stored in them.\n\n"
    listed = "\n".join(["```{toctree}", *(notebook.stem for notebook in notebooks), "```\n"])
    (made / "notebooks" / "index.md").write_text(words + listed, encoding="utf-8")


def with_links_of(text: str, old: Path, new: Path) -> str:
    """Return a page that was written for the folder ``old`` with links that hold in ``new``, a folder of the site."""

    def link(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(old / found[1]))
        inside = target.relative_to(ROOT).as_posix() if target.is_relative_to(ROOT) else ""
        if inside in OUTSIDE:
            target = HERE / "generated" / f"{OUTSIDE[inside]}.md"
        elif (target / "index.md").is_file():
            target /= "index.md"
        return Path(os.path.relpath(target, new)).as_posix()

    return _LINK.sub(link, text)


def mend_links(app: Any, name: str, source: list[str]) -> None:
    """Let links to pages outside of docs/ lead to the site's copies."""
    if not name.startswith("generated/"):
        folder = (HERE / name).parent
        source[0] = with_links_of(source[0], folder, folder)


def setup(app: Any) -> None:
    """Register both with Sphinx."""
    app.connect("config-inited", write_generated_pages)
    app.connect("source-read", mend_links)
