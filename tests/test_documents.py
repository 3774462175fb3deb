"""Documents say what the algorithms' entries say and what commands print; their links lead somewhere."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys

import pytest
from benchmarks import console, documents

import dprl
import dprl_papers
from dprl.config import documented
from dprl.release.artifacts import estimate_of
from dprl.release.learning_artifacts import policy_training_of, q_training_of

MADE = documents.made()
ROOT = documents.ROOT
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not {"generated", "_build"} & {*path.parts}]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *DOCS]
CONSOLE = console.pages()
CODE = [path for room in ("src", "papers", "tests", "benchmarks") for path in (ROOT / room).rglob("*.py")]
WORDS = {word for path in CODE for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MADE)
def test_documents_are_up_to_date(path):
    assert (ROOT / path).read_text(encoding="utf-8") == MADE[path], "run make docs"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_files(path):
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", text)
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize(
    "path", [*sorted((ROOT / "docs" / "proofs").glob("*.md")), ROOT / "docs" / "symbols.md"], ids=name_of
)
def test_files_and_names_of_the_code_are_there(path):
    """Names of several words, that is: a short one may be a symbol."""
    said = re.findall(r"`([\w./]+)`", path.read_text(encoding="utf-8"))
    files = [one.replace("papers/", "dprl_papers/", 1) for one in said if one.endswith(".py")]
    assert [one for one in files if not any(f"/{name_of(file)}".endswith(f"/{one}") for file in CODE)] == []
    names = [name for one in said for name in re.findall(r"\b(?![a-z]_)[a-z_]*_[a-z]{4,}$|\b(?:[A-Z][a-z]+){2,}", one)]
    assert [name for name in names if name not in WORDS] == []


@pytest.mark.parametrize("package", [dprl, dprl_papers])
def test_attributes_that_docstrings_name_are_there(package):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name != "dprl.__main__":
            for kind in vars(importlib.import_module(module.name)).values():
                if inspect.isclass(kind) and kind.__module__ == module.name:
                    assert set(documented(kind)) <= members_of(kind), kind


def members_of(kind):
    """Names of what a class and its bases declare, define, or set in their methods."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("dprl")]
    declared = {name for base in own for name in inspect.get_annotations(base)}
    return {*dir(kind), *declared, *re.findall(r"\bself\.(\w+)", " ".join(map(inspect.getsource, own)))}


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=name_of)
def test_pages_that_say_how_to_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 100


def test_the_reference_has_every_public_name():
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert set(re.findall(r":: dprl\.(\w+)$", page, flags=re.MULTILINE)) == set(dprl.__all__)


@pytest.mark.parametrize("made", [estimate_of, q_training_of, policy_training_of])
def test_the_page_of_files_has_every_field(made):
    page = (ROOT / "docs" / "certificate.md").read_text(encoding="utf-8")
    fields = set(re.findall(r'"(\w+)":', inspect.getsource(made)))
    assert {field for field in fields if f"`{field}`" not in page} == set()


def test_the_command_line_page_has_every_command():
    page = documents.command_line()
    heads = set(re.findall(r"^## dprl (.+)$", page, flags=re.MULTILINE))
    assert {"evaluate", "plan", "ledger create", "data describe", "verify"} <= heads
    assert page.count("Usage: dprl") == len(heads)


PAGE = """Text.

<!-- file: said.txt -->
```text
one
two
```

<!-- setup: echo three >> said.txt -->
```console
$ cat said.txt
one
two
three
$ echo value \\
    12
value 9
$ echo "error: no" && exit 2
error: no
```

<!-- not run: it would fail -->
```console
$ false
```
"""


def test_a_page_is_run():
    text, ran = console.run(PAGE)
    assert text == PAGE.replace("value 9", "value 12")
    assert [one.printed for one in ran] == ["one\ntwo\nthree\n", "value 12\n", "error: no\n"]
    assert all(one.as_said() for one in ran)


@pytest.mark.parametrize(
    ("old", "new", "noticed"),
    [
        ("value 9", "values 9", True),
        ("one\ntwo\nthree\n$", "one\n4\nthree\n$", True),
        ("value 9", "value 9e-5", False),
        ("one\ntwo\nthree\n$", "one\n...\n$", False),
    ],
)
def test_an_output_that_differs_is_noticed(old, new, noticed):
    """Words always, numbers where nothing random is in them."""
    _, ran = console.run(PAGE.replace(old, new, 1) if old.startswith("value") else new.join(PAGE.rsplit(old, 1)))
    assert any(not one.as_said() for one in ran) == noticed


def test_a_command_that_fails_ends_the_run():
    with pytest.raises(RuntimeError, match="ended with exit code 1"):
        console.run("```console\n$ false\n```\n")


def test_the_pages_of_the_first_hour_are_run():
    assert {"README.md", "docs/tutorials/evaluate-a-trial.md", "docs/how-to/ledger.md"} <= {*map(name_of, CONSOLE)}


@pytest.mark.slow
@pytest.mark.parametrize("path", CONSOLE, ids=name_of)
def test_pages_say_what_commands_print(path):
    _, ran = console.run(path.read_text(encoding="utf-8"))
    assert [one for one in ran if not one.as_said()] == [], "run python -m benchmarks.console"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path):
    pytest.importorskip("myst_nb", reason="the extra docs")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", str(tmp_path / "trees")]
    built = subprocess.run([*command, str(ROOT / "docs"), str(tmp_path / "html")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 100
    remote = re.compile(
        r"<(?:script|img|iframe)[^>]+src=\"(?:https?:)?//|<link[^>]+rel=\"stylesheet\"[^>]+href=\"(?:https?:)?//"
    )
    assert [page.name for page in pages if remote.search(page.read_text(encoding="utf-8"))] == []
