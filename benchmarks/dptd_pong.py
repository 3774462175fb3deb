"""DPTD on pictures of 80x80 pixels, 320,101 weights, one seed: the same candidates as on Cart Pole."""

from __future__ import annotations

from typing import Any

from benchmarks.dptd_cart_pole import measured


def run() -> dict[str, Any]:
    return measured("pong", "DPTD, Pong of 80x80 pixels, a network of 320,101 weights", 1.2, 240.0)
