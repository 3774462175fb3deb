"""Lines of a CSV stand alone, whatever ends them and wherever in the file they are."""

from __future__ import annotations

import pytest

from dprl.data.csv_file import LONGEST_LINE, read_cells

HEADER = ["person_id", "note"]


def people(path) -> list[str]:
    return read_cells(path, ["person_id"]).column(0).to_pylist()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_ends_the_header_too(tmp_path, end):
    """A line feed in somebody's cell must not decide where the header of a file with carriage returns ends."""
    path = tmp_path / "log.csv"
    rows = [f"p{i},x" for i in range(5)]
    path.write_bytes(end.join([",".join(HEADER), *rows, ""]).encode())
    assert [p for p in people(path) if p] == [f"p{i}" for i in range(5)]
    path.write_bytes(end.join([",".join(HEADER), *rows, 'q,"a\nb"', ""]).encode())
    assert [p for p in people(path) if p and p.startswith("p")] == [f"p{i}" for i in range(5)]


@pytest.mark.parametrize("before", [0, 10, 600_000, LONGEST_LINE - 100])
@pytest.mark.parametrize("length", [LONGEST_LINE - 5, LONGEST_LINE + 5, LONGEST_LINE + LONGEST_LINE // 2])
def test_a_line_is_judged_by_its_own_length(tmp_path, before, length):
    path = tmp_path / "log.csv"
    filler = "p0," + "x" * (before - 4) + "\n" if before else ""
    long = "p1," + "y" * (length - 3)
    path.write_text(",".join(HEADER) + "\n" + filler + long + "\np2,z\n")
    expected = (["p0"] if before else []) + (["p1"] if length <= LONGEST_LINE else []) + ["p2"]
    assert people(path) == expected
