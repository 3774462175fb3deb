"""The HTML report of a release. It reads artifacts alone, never a log."""

from __future__ import annotations

from dprl.report.render import first_section, render, render_folder

__all__ = ["first_section", "render", "render_folder"]
