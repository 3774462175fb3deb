"""What is printed of a value's errors: zero is never said of a sampling error that the noise hides."""

from __future__ import annotations

import pytest

from dprl.cli.evaluate import _errors


@pytest.mark.parametrize(
    ("sampling", "most", "words"),
    [
        (0.25, None, "privacy noise 0.5, sampling error about 0.25"),
        (0.25, 0.3, "privacy noise 0.5, sampling error about 0.25, at most 0.3"),
        (0.0, 0.3, "privacy noise 0.5, sampling error at most 0.3"),
        (0.0, None, "privacy noise 0.5, sampling error hidden by it"),
    ],
)
def test_errors_in_words(sampling, most, words):
    found = {"privacy_standard_error": 0.5, "sampling_standard_error": sampling}
    assert _errors(found | ({} if most is None else {"sampling_standard_error_at_most": most})) == words
