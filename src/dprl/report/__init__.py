"""The HTML report of a release. It reads only artifacts, never a log."""

from __future__ import annotations

from dprl.report.render import render, render_folder

__all__ = ["render", "render_folder"]
