"""Configuration of the documentation site: ``make docs`` builds it into docs/_build/html, without a network."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from benchmarks import documents  # noqa: E402
from dprl import __version__  # noqa: E402

project, author, release = "dprl", "the authors of dprl", __version__
project_copyright = "the authors of dprl, Apache-2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "README.md"]

html_theme = "furo"
html_title = f"dprl {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4ee", "color-brand-content": "#7cc4ee"},
}

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 5
# notebooks are shown as they were stored; nothing is executed
nb_execution_mode = "off"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 80
suppress_warnings = ["ref.python"]


def write_generated_pages(app: object) -> None:
    """Write the pages that are made from the package, and copy the notebooks of examples/ beside the pages."""
    (HERE / "reference" / "command-line.md").write_text(documents.command_line(), encoding="utf-8")
    shutil.rmtree(HERE / "notebooks", ignore_errors=True)
    (HERE / "notebooks").mkdir()
    for notebook in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        shutil.copy(notebook, HERE / "notebooks")


def setup(app: object) -> None:
    """Register the generated pages with Sphinx."""
    app.connect("config-inited", lambda app, config: write_generated_pages(app))  # type: ignore[attr-defined]
