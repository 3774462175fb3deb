"""The HTML report of a release, made from its artifacts alone."""

from __future__ import annotations

from dprl.report.pages import render, render_folder

__all__ = ["render", "render_folder"]
