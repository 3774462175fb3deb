"""What a notebook shows: parts of pages that are drawn from released numbers alone."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dprl
from dprl.audits.lower_bound import Audit
from dprl.report import render
from tests.sample_log import shown_pages


@pytest.fixture(scope="module")
def pages():
    return shown_pages()
