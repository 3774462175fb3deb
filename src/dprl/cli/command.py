"""Make a command from its request class: read flags and run file into one object, and report all mistakes at once.

Also what commands print: a result, and a progress bar while they run.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import threading
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, fields
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar

import typer
from typer.core import TyperCommand

from dprl.cli import SETTINGS
from dprl.cli.requests import EXPERT, MAY, MUST, USUAL, LogOptions, Request, Settings
from dprl.config import RENAMED, documented, from_text, merge, read_fields, words_of
from dprl.errors import Mistakes
from dprl.registry import find_in

R = TypeVar("R", bound=Request)
_UsageError: Any = typer.BadParameter.__base__
_READ, _TOPIC = "dprl.read", "dprl.topic"
_METAVARS = {"a number": "NUMBER", "a whole number": "N", "text": "TEXT", "true or false": "true|false"}


class Command(TyperCommand):
    """A command that reports all mistakes at once, and whose help has three groups of options.

    Attributes:
        request: class of its request; :class:`Request` itself for a command that is made from a function's signature.
        hints: types of the request's fields, by name; empty for a command that is made from a function's signature.
    """

    request: type[Request] = Request
    hints: ClassVar[dict[str, Any]] = {}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. Flags that are not the command's own are kept for the algorithm, if there is one."""
        if ctx.resilient_parsing:  # a shell completes a line that is not finished
            return super().parse_args(ctx, args)
        mistakes, others = Mistakes(), {}
        known, wrong = self._own(ctx, args, mistakes, others), set()
        try:
            values, rest, _ = self.make_parser(ctx).parse_args(known)
        except _UsageError as error:
            values, rest = {}, []
            mistakes.add(error.format_message())
        for param in self.get_params(ctx):
            try:
                _, rest = param.handle_parse_result(ctx, values, rest)
            except _UsageError as error:
                plain = param.name in self.hints and not param.required
                words = f"{param.opts[0]} must be {words_of(self.hints[param.name])}." if plain else ""
                mistakes.add(words or error.format_message())
                wrong.add(param.name)
        if rest:
            mistakes.add(f"The argument {rest[0]!r} is one too many: see {ctx.command_path} --help.")
        if not self.request.algorithms():
            for name in others:
                mistakes.add(unknown(name, [n for p in self.params for n in p.opts], ctx.command_path))
        if self.request is Request:
            mistakes.check()
        ctx.meta[_READ] = mistakes, others, wrong
        ctx.args = []
        return []

    def _own(self, ctx: Any, args: list[str], mistakes: Mistakes, others: dict[str, str]) -> list[str]:
        """Return the arguments that are the command's own; put the other flags into ``others``."""
        options = [p for p in self.get_params(ctx) if p.param_type_name == "option"]  # a folder may be called `results`
        takes = {n: not getattr(p, "is_flag", False) for p in options for n in (*p.opts, *p.secondary_opts)}
        known, left = [], deque(args)
        while left:
            token = left.popleft()
            name, equals, text = token.partition("=")
            if token in ("-h", "--help"):
                self._help(ctx, args)
            if token == "--":
                return [*known, token, *left]
            if name in takes or not token.startswith("--"):
                missing = takes.get(name, False) and not equals and not left
                if missing:
                    mistakes.add(f"{name} needs a value: it requires an argument.")
                else:
                    known += [token, left.popleft()] if takes.get(name, False) and not equals else [token]
            elif equals:
                others[name] = text
            else:
                others[name] = left.popleft() if left and not left[0].startswith("--") else "true"
        return known

    def _help(self, ctx: Any, args: list[str]) -> None:
        topics = ("all", *self.request.algorithms())
        ctx.meta[_TOPIC] = next((word for word in args if word in topics), None)
        typer.echo(self.get_help(ctx))
        raise typer.Exit

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write what the command does: the first paragraph, or all paragraphs for ``--help all``."""
        text, topic = inspect.cleandoc(self.help or "").partition("\n\nAttributes:")[0], ctx.meta.get(_TOPIC)
        if self.request is not Request and topic is None:
            text = text.partition("\n\n")[0]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text if topic in (None, "all") else f"The options of {topic}, beside those of all.")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in groups: required, optional, for experts. The first page only names the last group's."""
        topic, groups = ctx.meta.get(_TOPIC), {MUST: [], MAY: [], EXPERT: []}
        first = self.request is not Request and topic is None
        rows = self._rows(ctx, first) if topic in (None, "all") else self._rows_of_algorithm(topic)
        for group, row in rows:
            groups[group].append(row)
        few = groups.pop(EXPERT) if first else []
        for group, rows in groups.items():
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)
        if first:
            formatter.write_text(f"{EXPERT}: {', '.join(name.partition(' ')[0] for name, _ in few)}.")
            own = ", or --help ALGORITHM for its options" if self.request.algorithms() else ""
            formatter.write_text(f"More: {ctx.command_path} --help all{own}.")
        elif topic == "all" and (names := self.request.algorithms()):
            formatter.write_text(f"Algorithms, whose options --help ALGORITHM shows: {', '.join(sorted(names))}.")

    def _rows(self, ctx: Any, first: bool) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield the group, the flag and the words of each option; only their first sentence on the first page."""
        for param in self.get_params(ctx):
            name, text = param.get_help_record(ctx) or ("-h", "")
            if not name.startswith("-h"):
                group = getattr(param, "rich_help_panel", None) or (MUST if param.required else MAY)
                text = text.partition(". ")[0] if first else text.removesuffix("  [required]")
                yield group, (re.split(" / | <", name)[0], text.removesuffix("."))

    def _rows_of_algorithm(self, name: str) -> Iterator[tuple[str, tuple[str, str]]]:
        kind, own = self.request.algorithms()[name].load_config(), {p.name for p in self.params}
        hints, words = typing.get_type_hints(kind), documented(kind)
        for one in fields(kind):
            if one.name != "provenance":
                flag = f"--set {one.name}" if one.name in own else _flag(one.name)
                default = "" if one.default is None else f" [default: {one.default}]"
                row = f"{flag} {_metavar(hints[one.name])}", words.get(one.name, "").removesuffix(".") + default
                yield MAY if one.name in USUAL else EXPERT, row


@cache
def make_command(name: str, function: Callable[..., None]) -> Any:
    """Return the command ``name``, made from a function's signature or from the request class of its argument."""
    kind, alone = typing.get_type_hints(function).get("request"), typer.Typer(**SETTINGS)
    if kind is None:
        alone.command(name, cls=Command)(function)
        return typer.main.get_command(alone)
    hints, words = typing.get_type_hints(kind), documented(kind)

    def callback(context: typer.Context, **given: Any) -> None:
        function(_read(kind, given, *context.meta[_READ]))

    said = sorted((one for one in fields(kind) if one.metadata), key=lambda one: "argument" not in one.metadata)
    own = [_parameter(one, hints[one.name], words[one.name]) for one in said]
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    callback.__signature__ = inspect.Signature([context, *own])  # type: ignore[attr-defined]
    alone.command(name, cls=type("Of", (Command,), {"request": kind, "hints": hints}), help=kind.__doc__)(callback)
    return typer.main.get_command(alone)


def _parameter(one: Field[Any], hint: Any, words: str) -> inspect.Parameter:
    """Return a field as a parameter for typer. Typer requires none of them, for a run file may give the value."""
    how: dict[str, Any] = {
        "help": words,
        "rich_help_panel": one.metadata["group"],
        "metavar": one.metadata.get("metavar"),
        "readable": False,  # not checked here: whoever opens the file says why it cannot be read
    }
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind not in (type(None), dict)]
    if one.metadata.get("argument"):
        info: Any = typer.Argument(**how)
    else:
        info = typer.Option(*([one.metadata["flag"]] if "flag" in one.metadata else []), **how)
    annotation = Annotated[kinds[0] if kinds[0] is bool else kinds[0] | None, info]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=annotation)


def _read(kind: type[R], given: dict[str, Any], mistakes: Mistakes, others: dict[str, str], wrong: set[str]) -> R:
    """Return the request, read from the flags and the run file; flags win."""
    hints, words = typing.get_type_hints(kind), documented(kind)
    said = {name: value for name, value in given.items() if value not in (None, []) and name not in wrong}
    source, content = said["config"].name if "config" in said else "", {}
    if source:
        from dprl.data.bounds_file import read_toml

        content = mistakes.attempt(read_toml, said["config"], "run file") or {}
    in_file = [one.name for one in fields(kind) if one.metadata.get("file")]
    for name in [name for name in content if "-" in name and name.replace("-", "_") in in_file]:
        mistakes.add(f"{source}: write {name.replace('-', '_')} in place of {name!r}.")
        content.setdefault(name.replace("-", "_"), content.pop(name))  # so that it is not reported as missing, too
    from_file = {name: content[name] for name in in_file if name in content}
    values = read_fields(hints, from_file, source, "", mistakes, called="{name}")
    wrong |= from_file.keys() - values.keys()
    options = [({name: value for name, value in content.items() if name not in in_file}, source)] if source else []
    settings = [
        mistakes.attempt(kind.parse_setting, text) for text in said.get("setting", ()) if issubclass(kind, Settings)
    ]
    options.append((dict(pair for pair in settings if pair is not None), "--set"))
    flags = {name.removeprefix("--").replace("-", "_"): text for name, text in others.items()}
    values |= said
    for one in fields(kind):
        if one.metadata.get("group") == MUST and values.get(one.name) is None and one.name not in wrong:
            what = f"The {one.name}" if one.metadata.get("argument") else _flag(one.name)
            mistakes.add(f"{what} is missing: {words[one.name].partition('. ')[0].removesuffix('.')}.")
    return kind(**values, options=options, flags=flags, mistakes=mistakes)


def configure(request: Request, name: str, **given: Any) -> Any:
    """Return the algorithm's configuration, each option marked with where it came from.

    Args:
        given: options of the algorithm that are options of the command, too.

    Raises:
        DprlError: every wrong option, together.
    """
    mistakes = Mistakes()
    kind = find_in(request.algorithms(), name).load_config()
    hints = typing.get_type_hints(kind)
    for flag, text in request.flags.items():
        option = flag if flag in kind.options() else RENAMED.get(flag, flag)
        if option in kind.options():
            given[option] = from_text(hints[option], text)
            continue
        owners = [other for other, entry in request.algorithms().items() if option in entry.load_config().options()]
        if owners:
            mistakes.add(f"{_flag(option)} is an option of {', '.join(owners)}, not of {name}: leave it out.")
        elif others := _commands_with(flag):
            mistakes.add(f"{_flag(flag)} is an option of {', '.join(others)}: leave it out.")
        else:
            known = [*kind.options(), *(one.name for one in fields(request) if one.metadata)]
            mistakes.add(unknown(_flag(option), map(_flag, known), name))
    configured = mistakes.attempt(merge, kind, [*request.options, (given, "flag")])
    mistakes.check()
    return configured


def _commands_with(option: str) -> list[str]:
    """Return the commands that have an option of this name."""
    from dprl.cli import COMMANDS, app

    group = typer.main.get_command(app)
    commands = {f"dprl {name}": group.get_command(None, name) for name in COMMANDS}  # type: ignore[attr-defined, arg-type]
    return [name for name, command in commands.items() if option in {param.name for param in command.params}]


def configure_named(request: LogOptions) -> Any:
    """Return the configuration of the named or default algorithm; None after a mistake, which is noted."""
    name = request.mistakes.attempt(request.algorithm_name)
    return request.mistakes.attempt(configure, request, name) if name else None


def unknown(flag: str, known: Any, owner: str) -> str:
    """Return a sentence about an unknown flag, with the flag that may have been meant."""
    close = get_close_matches(flag, known, 1)
    return f"{owner} has no option {flag}" + (f": did you mean {close[0]}?" if close else ": leave it out.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _metavar(hint: Any) -> str:
    words = words_of(hint)
    return _METAVARS.get(words, words.replace(" or ", "|"))


# --- what commands print ----------------------------------------------------------------------------------------------


def print_result(made: Mapping[str, Any], lines: Iterable[str], as_json: bool) -> None:
    """Print a result as one JSON object, or in words, line by line."""
    typer.echo(json.dumps(made, allow_nan=False) if as_json else "\n".join(lines))


def conditions_of(conditions: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each condition of a theorem, and whether it holds, in words."""
    return [f"{c['statement']}: this {'holds' if c['holds'] else 'does not hold'} here" for c in conditions]


class Progress:
    """A progress bar on stderr, with the time that is left; without a number of steps it appears after three seconds.

    In a release the number of updates is public: it does not depend on the rows. ``steps`` is left out if the number is
    not known yet, so that :meth:`expect` tells it once the public facts are read, or if nobody can say.
    """

    def __init__(self, steps: int = 0, *, quiet: bool = False, doing: str = "private updates") -> None:
        self._steps, self._doing, self._bar, self._task = steps, doing, None, None
        self._quiet, self._lock = quiet or not sys.stderr.isatty(), threading.Lock()
        self._patience = threading.Timer(3.0, self._show, ("preparing", None))
        self._patience.daemon = True

    def __enter__(self) -> Progress:
        self.expect(self._steps)
        if self._bar is None and not self._quiet:
            self._patience.start()
        return self

    def expect(self, steps: int) -> None:
        """Show the bar for this number of updates; show none for 0."""
        if steps:
            self._show(self._doing, steps)

    def _show(self, doing: str, steps: int | None) -> None:
        with self._lock:
            if self._quiet:
                return
            if self._bar is None:
                from rich.console import Console
                from rich.progress import Progress as Bar

                self._bar = Bar(console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task(doing, total=steps)
                self._bar.start()
            elif steps is not None and self._task is not None:
                self._bar.reset(self._task, description=doing, total=steps)

    def __exit__(self, *_: object) -> None:
        self._patience.cancel()
        with self._lock:
            self._quiet = True  # the timer may be late
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, done: int) -> None:
        """Show how many steps are done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)
