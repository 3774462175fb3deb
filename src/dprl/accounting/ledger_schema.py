"""The tables of a ledger, with the triggers that protect them, and the queries that check them.

Amounts are decimal text. Python sums them exactly; SQL sums their floating-point values, with room only for rounding.
"""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import resources

from dprl.accounting.intents import Intent

UNITS = ("person", "trajectory", "transition", "reward function")
RELATIONS = ("add or remove one", "zero out one", "replace one")
"""Neighbouring relations between logs. A relation between reward functions is stated in words with its own numbers."""

APPLICATION, VERSION = 0x6470726C, 3  # "dprl"

_SQL = resources.files("dprl.accounting").joinpath("ledger.sql").read_text("utf-8")
SCHEMA = tuple(statement.rstrip(";\n") for statement in re.sub("--.*\n", "", _SQL).strip().split("\n\n"))


def _known(schema: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return a schema, and its earlier forms without the units transition and reward function.

    Ledgers that were made with an earlier form keep working with the units that they know.
    """
    of_rewards = re.compile(r"CASE unit WHEN .* THEN .* ELSE (relation IN .*) END")
    earlier = (
        tuple(of_rewards.sub(r"\1", statement.replace(str(UNITS), str(UNITS[:count]))) for statement in schema)
        for count in (2, 3)
    )
    return schema, *earlier


BINDING = tuple(statement for statement in SCHEMA if "binding" in statement)
KNOWN = {2: _known(tuple(statement for statement in SCHEMA if statement not in BINDING)), VERSION: _known(SCHEMA)}
"""Schemas that a ledger of each version may have. A ledger of version 2 gets its bindings when it is next written."""

_FIELDS = ", ".join(f"coalesce(json_extract(value, '$.{field.name}'), '') AS {field.name}" for field in fields(Intent))
_ENTRY = f"WITH entry AS MATERIALIZED (SELECT key AS place, {_FIELDS} FROM json_each(?))"
_CHARGED = """SELECT row_number() OVER (ORDER BY place) AS id, dataset,
  row_number() OVER (PARTITION BY dataset ORDER BY place) AS sequence, token, epsilon, delta, purpose, time
  FROM entry WHERE kind = 'charge'"""

DIFFERENCES = tuple(
    # the held rows are distinct, and as many as the said rows: so if each held row is said, both are the same
    f"{_ENTRY}, said AS ({said}), held AS ({held}) "
    "SELECT (SELECT count(*) FROM said) <> (SELECT count(*) FROM held) "
    "OR EXISTS (SELECT * FROM held EXCEPT SELECT * FROM said)"
    for held, said in (
        (
            "SELECT name, epsilon, delta, unit, relation, created FROM dataset",
            "SELECT dataset, epsilon, delta, unit, relation, time FROM entry WHERE kind = 'dataset'",
        ),
        ("SELECT id, dataset, sequence, token, epsilon, delta, purpose, created FROM charge", _CHARGED),
        (
            "SELECT charge, content, created FROM binding",
            f"SELECT id, content, entry.time FROM entry LEFT JOIN ({_CHARGED}) USING (token) WHERE kind = 'binding'",
        ),
    )
)
"""Queries that tell whether the table of datasets, charges or bindings differs from a JSON list of the intents."""
