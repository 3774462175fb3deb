"""Plugins: methods and a domain from a researcher's own file, for one run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from dprl.errors import DprlError
from dprl.user_code import load_python
from dprl_papers.harness.algorithm import is_reviewed
from dprl_papers.harness.domain import Domain
from dprl_papers.harness.method import Method, add_methods
from dprl_papers.harness.spec import Measured, Paper


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """Additions of a plugin file: METHODS for every measured figure, and a DOMAIN with a figure of its own."""

    path: Path
    methods: tuple[Method, ...] = ()
    domain: Domain | None = None
    units: tuple[float, ...] = (100.0, 200.0, 500.0, 1000.0)

    def figure(self, paper: Paper) -> Measured | None:
        """Return the figure of the plugin's domain.

        It shows the errors of the methods that the paper compares across domains, against the size of the log.
        """
        if self.domain is None:
            return None
        like = next((f for f in paper.figures if isinstance(f, Measured) and f.x == "domain"), None)
        return Measured(
            name=self.domain.name,
            title=f"{self.domain.label}: error against the number of trajectories",
            where=f"the domain of {self.path.name}",
            domains=(self.domain.name,),
            values=self.units,
            quick=self.units[:2],
            metric="rmse",
            methods=("zero", "public-constant") if like is None else like.methods,
        )


def load_plugin(path: str | Path) -> Plugin:
    """Execute a plugin file, and return its METHODS and DOMAIN.

    Raises:
        DprlError: the file does not exist, cannot be executed, or defines neither METHODS nor DOMAIN.
    """
    path = Path(path)
    if path.suffix != ".py":
        raise DprlError(f"A plugin is a Python file: {str(path)!r} is none.")
    module = load_python(path, "plugin", quoted=True)
    methods, domain = getattr(module, "METHODS", None), getattr(module, "DOMAIN", None)
    if methods is None and domain is None:
        raise DprlError(f"The plugin {str(path)!r} defines neither METHODS nor DOMAIN.")
    if domain is not None and not isinstance(domain, Domain):
        raise DprlError(f"The plugin {str(path)!r}: DOMAIN must be a dprl_papers.harness.domain.Domain.")
    found = add_methods({}, () if methods is None else methods, path.name)
    own = tuple(method if is_reviewed(method) else _unreviewed(method) for method in found.values())
    return Plugin(path=path.resolve(), methods=own, domain=domain)


def _unreviewed(method: Method) -> Method:
    """Return the method, ``unreviewed`` if it calls itself ``verified``: nobody here has proved what it protects."""
    return replace(method, guarantee="unreviewed") if method.guarantee == "verified" else method
