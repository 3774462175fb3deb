"""The tables of a ledger, with the triggers by which they defend themselves, and the queries that check them.

Decimal text is summed exactly in Python; in SQL its floating-point value is, with room for rounding alone.
"""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import resources

from dprl.accounting.intents import Entry

UNITS = ("person", "trajectory", "transition", "reward function")
RELATIONS = ("add or remove one", "zero out one", "replace one")
"""Relations between logs; what a relation between reward functions says, it says with its numbers."""

APPLICATION, VERSION = 0x6470726C, 3  # "dprl"

_SQL = resources.files("dprl.accounting").joinpath("ledger.sql").read_text("utf-8")
SCHEMA = tuple(statement.rstrip(";\n") for statement in re.sub("--.*\n", "", _SQL).strip().split("\n\n"))


def _known(schema: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return a schema, and what it was before there were transitions, or reward functions.

    Ledgers that were made then go on with the units that they know.
    """
    of_rewards = re.compile(r"CASE unit WHEN .* THEN .* ELSE (relation IN .*) END")
    earlier = (
        tuple(of_rewards.sub(r"\1", statement.replace(str(UNITS), str(UNITS[:count]))) for statement in schema)
        for count in (2, 3)
    )
    return schema, *earlier


BINDING = tuple(statement for statement in SCHEMA if "binding" in statement)
KNOWN = {2: _known(tuple(statement for statement in SCHEMA if statement not in BINDING)), VERSION: _known(SCHEMA)}
"""What each version's ledgers are made of. One of version 2 gets its bindings when something is entered."""

_FIELDS = ", ".join(f"coalesce(json_extract(value, '$.{field.name}'), '') AS {field.name}" for field in fields(Entry))
_ENTRY = f"WITH entry AS MATERIALIZED (SELECT key AS place, {_FIELDS} FROM json_each(?))"
_CHARGED = """SELECT row_number() OVER (ORDER BY place) AS id, dataset,
  row_number() OVER (PARTITION BY dataset ORDER BY place) AS sequence, token, epsilon, delta, purpose, time
  FROM entry WHERE kind = 'charge'"""

DIFFERENCES = tuple(
    # the held are different from one another, and as many as are said: so if each is said, they are the same
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
"""Queries that tell whether the table of datasets, charges or bindings differs from the intents, a JSON list."""
