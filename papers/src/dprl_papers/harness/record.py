"""The record of a paper, ``papers/results/NNN.json``, and the tables of ``docs/papers/NNN.md`` that are made from it.

Each figure's record names the command, the commit, the libraries and the seeds of its cells, how long each cell took,
and the digest of every file on which its numbers depend. If one of these files has changed since, the page marks the
figure as stale.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dprl.errors import DprlError
from dprl.files import write_atomically
from dprl_papers.harness.page import capital, tables_of
from dprl_papers.harness.results import with_verdicts
from dprl_papers.harness.runner import Runner, Task
from dprl_papers.harness.spec import Measured, Paper, Programmed, load_paper, papers
from dprl_papers.harness.store import address, read_json
from dprl_papers.harness.versions import DIRTY, PACKAGES, closure, code_in, libraries, module_file

ROOT = PACKAGES["dprl_papers"].parents[2]
RECORD, PAGES = ROOT / "papers" / "results", ROOT / "docs" / "papers"
SPECIFICATION, SETTINGS = "its specification", "the paper's settings"
STALE = "> **Stale.**"
"""Beginning of the line that marks a figure whose code has changed."""
_ROOMS = ("evaluation", "learning", "mechanisms", "protectors", "environments", "value_functions")
_PLUMBING = ("dprl/evaluation/plan.py", "dprl_papers/harness/", "dprl_papers/registered.py")
_MEASURES = (
    "algorithm",
    "domain",
    "dqn",
    "metrics",
    "neural",
    "problem",
    "q_learning",
    "simulated",
    "transitions",
)
"""Modules of the harness that draw logs, learn or measure."""
_READS = {"tables.py": "scikit-learn", "treatment.py": "lifelines", "atari.py": "ale-py"}
"""Files that read another library's data, or play its game."""
_WORDS = ("name", "title", "where", "statement", "note", "claims", "module", "extra", "quick")


# --- what a figure was made by ----------------------------------------------------------------------------------------


def made_by(runner: Runner, figure: Measured | Programmed, parts: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the provenance of a figure whose cells are stored; ``parts`` are the cells within a programmed figure."""
    request = runner.request
    cells, files = [], set[Path]()
    if isinstance(figure, Measured):
        for cell in dict.fromkeys(cell for *_, cell in request.points(figure)):
            made = [_made(runner, Task(cell, *chunk)) for chunk in runner.chunks(cell.domain)]
            where = [cell.domain, cell.units, cell.method, cell.factor, cell.epsilon]
            cells.append(_cell(" ".join(map(str, where)), made))
            files |= request.methods[cell.method].files() | {runner.domain_file(cell.domain)}
        module = figure.beside.partition(":")[0]
    else:
        own, module = _made(runner, Task(figure=figure.name)), figure.module
        cells = [_cell(f"figure {figure.name}", [own]), *(_cell(part["what"], [part]) for part in parts)]
    if module and (file := module_file(module)):
        files.add(file)
    within = sum(cell["seconds"] for cell in cells[isinstance(figure, Programmed) :])
    first, last = request.paper.seed, request.paper.seed + request.trials - 1
    code = {name: digest(file) for name, file in sorted((_name(file), file) for file in closure(files, _counts))}
    return {
        "command": f"dprl reproduce {request.paper.number} --figure {figure.name}",
        "seeds": [first, last] if isinstance(figure, Measured) else [first],
        "commits": sorted({commit for cell in cells for commit in cell["commits"]}),
        "versions": libraries() | reads(code),
        "seconds": round(max(within, cells[0]["seconds"]), 1),
        "code": {SPECIFICATION: specification(figure), SETTINGS: settings(request.paper)} | code,
        "cells": cells,
    }


def reads(code: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed libraries whose data these files read."""
    files, found = {name.split("/")[-1] for name in code}, {}
    for file in files & set(_READS):
        with suppress(metadata.PackageNotFoundError):
            found[_READS[file]] = metadata.version(_READS[file])
    return dict(sorted(found.items()))


def _made(runner: Runner, task: Task) -> dict[str, Any]:
    found = runner.store.cell(runner.key(task))
    assert found is not None
    return found["made"]


def _cell(what: str, made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    commits = sorted({str(one["commit"]) for one in made})
    return {"what": what, "commits": commits, "seconds": round(sum(one["seconds"] for one in made), 3)}


def _counts(path: Path) -> bool:
    """Return whether numbers depend on a file: on algorithms, mechanisms, simulators, papers, or files of a plugin.

    This decides only the stale marks on pages. A cell is computed again when the code in any file behind it changed.
    """
    package, _, rest = _name(path).partition("/")
    if path.name == "__init__.py" or (package == "dprl" and rest.partition("/")[0] not in _ROOMS):
        return False
    return not _name(path).startswith(_PLUMBING) or (rest.startswith("harness/") and path.stem in _MEASURES)


def _name(path: Path) -> str:
    for package, folder in PACKAGES.items():
        if path.is_relative_to(folder):
            return f"{package}/{path.relative_to(folder)}"
    return path.name


@cache  # many figures depend on the same files
def digest(path: Path) -> str:
    """Return the digest of a file; of a Python file only the code counts."""
    return hashlib.sha256(code_in(path)).hexdigest()[:16]


def specification(figure: Measured | Programmed) -> str:
    """Return the digest of what a figure asks for, without its words."""
    return address({name: x for name, x in vars(figure).items() if name not in _WORDS})[:16]


def settings(paper: Paper) -> str:
    """Return the digest of what all figures of a paper share: trials, seeds, delta, logs and tuned numbers."""
    tuned = [(t.method, t.domain, t.epsilon, t.units, t.best) for t in paper.tuned]
    logs = [(log.domain, log.units) for log in paper.logs]
    shared = {name: getattr(paper, name) for name in ("trials", "seed", "delta")}
    return address(shared | {"logs": logs, "tuned": tuned})[:16]


def stale(figure: Mapping[str, Any], paper: Paper) -> list[str]:
    """Return the names of all that has changed since a figure was computed."""
    asked = {SPECIFICATION: specification(paper.figure(figure["name"])), SETTINGS: settings(paper)}

    def now(name: str) -> str:
        package, _, rest = name.partition("/")
        file = PACKAGES[package] / rest if rest else None
        return asked.get(name, "") if file is None else digest(file) if file.is_file() else ""

    return [name for name, was in figure["made"]["code"].items() if now(name) != was]


# --- the record -------------------------------------------------------------------------------------------------------


def merged(old: Mapping[str, Any] | None, new: Mapping[str, Any], paper: Paper) -> dict[str, Any]:
    """Return ``new`` results together with the other figures of ``old``, in the order of the paper's figures.

    Nothing of ``old`` is kept where the schema, the paper, the plugin, the trials, the seed or delta differ, or one of
    the two runs is quick and the other is not. All claims are judged anew, because some compare one figure with
    another.
    """
    alike = ("schema", "paper", "quick", "plugin", "trials", "seed", "delta")
    if old is None or any(old.get(name) != new[name] for name in alike):
        return dict(new)
    figures = {f["name"]: f for f in (*old["figures"], *new["figures"])}
    order = [f.name for f in paper.figures]
    kept = sorted((f for f in figures.values() if f["name"] in order), key=lambda f: order.index(f["name"]))
    return {**new, "domains": old["domains"] | new["domains"], "figures": with_verdicts(kept, paper)}


def write_pages(number: str, out: Path) -> list[Path]:
    """Put the results in ``out``, if there are any, on record; write the paper's page and the table of all records.

    Raises:
        DprlError: this is not a checkout of the repository, or ``out`` holds a quick run, a plugin's run, a run with
            other trials than the paper's, or numbers of code that is in no commit.
    """
    if not (PAGES / f"{number}.md").is_file():
        raise DprlError("--pages writes papers/results and docs/papers: use it in a checkout of the repository.")
    found, file, paper = read_json(out), RECORD / f"{number}.json", load_paper(number)
    if found is not None:
        refuse_for_record(found, paper, str(out))
    old = read_json(file)
    if new := old if found is None else _rounded(found):
        RECORD.mkdir(exist_ok=True)
        text = json.dumps(merged(old, new, paper), indent=1, ensure_ascii=False)
        write_atomically(file, f"{text}\n".encode())
    made = pages()
    for path, text in made.items():
        write_atomically(path, text.encode())
    return [*([file] if new else []), *made]


def refuse_for_record(found: Mapping[str, Any], paper: Paper, where: str) -> None:
    """Refuse results that the paper's page must not show."""
    if found["quick"] or found["plugin"] or found["paper"] != paper.number:
        raise DprlError(f"{where!r} has a quick run, a plugin's, or another paper's: it does not go on record.")
    if any(found[name] != getattr(paper, name) for name in ("trials", "seed", "delta")):
        raise DprlError(f"{where!r} has other trials, seeds or a delta than the paper's: it does not go on record.")
    if any(commit.endswith(DIRTY) for figure in found["figures"] for commit in figure["made"]["commits"]):
        raise DprlError(f"{where!r} has numbers of code that no commit has: commit it, and compute them again.")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_rounded(x) for x in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


# --- pages ------------------------------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Return the pages of all papers, made from their records, and README.md with one row per figure."""
    made, rows = {}, list[list[str]]()
    for number in papers():
        paper, path = load_paper(number), PAGES / f"{number}.md"
        results = read_json(RECORD / f"{number}.json") or {"figures": []}
        figures = {f["name"]: f for f in results["figures"]}

        def block(mark: re.Match[str], figures: Any = figures, paper: Paper = paper) -> str:
            if mark[2] not in figures:
                return f"{mark[1]}*Not on record yet: `dprl reproduce {paper.number} --figure {mark[2]}`.*\n"
            return mark[1] + markdown(figures[mark[2]], paper)

        text = path.read_text(encoding="utf-8")
        made[path] = re.sub(r"(<!-- figure (\S+) -->\n).*?(?=<!-- end \2 -->)", block, text, flags=re.DOTALL)
        rows += [_row(paper, f, figures.get(f.name)) for f in paper.figures]
        done, seconds = f"{len(figures)} of {len(paper.figures)}", _seconds(figures.values())
        rows.append([number, done, f"`dprl reproduce {number}`", "", f"{seconds:,.0f}", ""])
    table = _table(["Paper", "Figure", "Command", "On record", "Seconds", "Commit"], rows)
    path, between = PAGES / "README.md", re.compile(r"(?<=<!-- records -->\n).*?(?=<!-- end records -->)", re.DOTALL)
    return made | {path: between.sub(lambda _: table + "\n", path.read_text(encoding="utf-8"))}


def _row(paper: Paper, figure: Measured | Programmed, found: Mapping[str, Any] | None) -> list[str]:
    cells = [paper.number, figure.title, f"`dprl reproduce {paper.number} --figure {figure.name}`"]
    if found is None:
        return [*cells, "no", "", ""]
    made = found["made"]
    what = f"{_count(made['cells'])}, {_trials(found)}" + (", stale" if stale(found, paper) else "")
    return [*cells, what, f"{made['seconds']:,.0f}", ", ".join(map(_short, made["commits"]))]


def _seconds(figures: Iterable[Mapping[str, Any]]) -> float:
    """Return how long all figures of a paper took; cells that several figures share count once."""
    parts, beside = dict[Any, float](), 0.0
    for figure in figures:
        own = figure["made"]["cells"][figure["kind"] == "programmed" :]
        parts |= {(cell["what"], *cell["commits"], cell["seconds"]): cell["seconds"] for cell in own}
        beside += figure["made"]["seconds"] - sum(cell["seconds"] for cell in own)
    return sum(parts.values()) + beside


def _trials(found: Mapping[str, Any]) -> str:
    """Return the seeds of a figure as text; for a programmed figure the first only, as its captions give the number."""
    first, *last = found["made"]["seeds"]
    return f"{last[0] - first + 1} trials, seeds {first} to {last[0]}" if last else f"seeds from {first}"


def _short(commit: str) -> str:
    return commit[:10] + DIRTY * commit.endswith(DIRTY)


def _count(cells: Sequence[Any]) -> str:
    return f"{len(cells)} cell" + ("s" if len(cells) != 1 else "")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, ["---"] * len(heads), *rows])


def markdown(figure: Mapping[str, Any], paper: Paper) -> str:
    """Return a figure's tables and verdicts in Markdown, below a line that says what made them."""
    made = figure["made"]
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    lines = [
        f"*`{made['command']}`: {_trials(figure)}; {_count(made['cells'])} in "
        f"{made['seconds']:,.0f} s; commit {', '.join(map(_short, made['commits']))}; {versions}.*",
        "",
    ]
    if changed := stale(figure, paper):
        lines += [f"{STALE} Since these numbers were computed {', '.join(f'`{c}`' for c in changed)} changed.", ""]
    for i, table in enumerate(tables_of(figure)):
        heads, *rows = ([_plain(cell) for cell in row] for row in (table["heads"], *table["rows"]))
        if i and heads[1:2] == ["Guarantee"]:  # the first table says it
            heads, *rows = ([row[0], *row[2:]] for row in (heads, *rows))
        rows = [row for row in rows if not i or row[0] != "Guarantee"]
        caption = table.get("caption") or f"{table['summary']}."
        lines += [capital(caption), "", _table(heads, rows), ""]
    for claim in figure["claims"]:
        words = f'"{claim["words"]}"{" (ours)" if claim["ours"] else ""}'
        lines.append(f"* *{claim['verdict']}*: {words} {capital(claim['text'])}")
    return "\n".join([*lines, *([""] if figure["claims"] else [])])


def _plain(cell: Any) -> str:
    if not isinstance(cell, Mapping):
        return str(cell).replace("|", "\\|")
    below = [words for words in cell.get("below", ()) if not words.endswith("range")]
    text = " · ".join([cell["text"], *below]).replace("|", "\\|")
    return f"**{text}**" if "best" in cell.get("class", "") else text
