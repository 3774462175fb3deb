"""HTML pages: the report of a release, made only from its artifacts, and the pages of other objects."""

from __future__ import annotations

from dprl.report.pages import render, render_folder

__all__ = ["render", "render_folder"]
