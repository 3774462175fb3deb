"""The tables of a ledger, and the triggers by which they defend themselves.

Decimal text is summed exactly in Python; in SQL its floating-point value is, with room for rounding alone.
"""

from __future__ import annotations

UNITS = ("person", "trajectory", "transition", "reward function")
RELATIONS = ("add or remove one", "zero out one", "replace one")
"""Of the units that a log holds; what a relation between reward functions says, it says with its numbers."""

APPLICATION, VERSION = 0x6470726C, 3  # "dprl"

_RELATION = f"CASE unit WHEN '{UNITS[3]}' THEN relation GLOB 'reward functions *' ELSE relation IN {RELATIONS} END"
_HEX = "{0} IS NULL OR (length({0}) = {1} AND {0} NOT GLOB '*[^0-9a-f]*')"

_TABLES = (
    # One row: who this ledger is, its secret, and how much of the intents it has entered.
    f"""CREATE TABLE book (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  ledger TEXT NOT NULL CHECK ({_HEX.format("ledger", 32)}),
  secret BLOB NOT NULL CHECK (typeof(secret) = 'blob' AND length(secret) = 32),
  entries INTEGER NOT NULL,
  size INTEGER NOT NULL,
  digest TEXT NOT NULL CHECK ({_HEX.format("digest", 64)})
)""",
    f"""CREATE TABLE dataset (
  name TEXT PRIMARY KEY NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  epsilon TEXT NOT NULL CHECK (typeof(epsilon) = 'text' AND CAST(epsilon AS REAL) > 0),
  delta TEXT NOT NULL CHECK (typeof(delta) = 'text' AND CAST(delta AS REAL) > 0 AND CAST(delta AS REAL) < 1),
  unit TEXT NOT NULL CHECK (unit IN {UNITS}),
  relation TEXT NOT NULL CHECK ({_RELATION}),
  created TEXT NOT NULL
)""",
    f"""CREATE TABLE charge (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dataset TEXT NOT NULL REFERENCES dataset (name),
  sequence INTEGER NOT NULL CHECK (sequence >= 1),
  token TEXT NOT NULL UNIQUE CHECK ({_HEX.format("token", 32)}),
  epsilon TEXT NOT NULL CHECK (typeof(epsilon) = 'text' AND CAST(epsilon AS REAL) > 0),
  delta TEXT NOT NULL CHECK (typeof(delta) = 'text' AND CAST(delta AS REAL) > 0 AND CAST(delta AS REAL) < 1),
  purpose TEXT NOT NULL CHECK (length(purpose) <= 500),
  created TEXT NOT NULL,
  settled TEXT,
  digest TEXT CHECK ({_HEX.format("digest", 64)}),
  finished TEXT CHECK ((finished IS NULL) = (digest IS NULL)),
  UNIQUE (dataset, sequence)
)""",
    f"""CREATE TABLE claim (
  fingerprint TEXT PRIMARY KEY NOT NULL CHECK ({_HEX.format("fingerprint", 64)}),
  dataset TEXT NOT NULL REFERENCES dataset (name),
  created TEXT NOT NULL
)""",
    """CREATE TRIGGER book_is_kept BEFORE DELETE ON book BEGIN
  SELECT RAISE(ABORT, 'the ledger itself is never removed');
END""",
    """CREATE TRIGGER book_goes_forward BEFORE UPDATE ON book
WHEN NEW.ledger <> OLD.ledger OR NEW.secret <> OLD.secret OR NEW.entries <= OLD.entries OR NEW.size <= OLD.size
BEGIN
  SELECT RAISE(ABORT, 'the count of intents only grows');
END""",
    """CREATE TRIGGER dataset_has_the_ledgers_unit BEFORE INSERT ON dataset BEGIN
  SELECT RAISE(ABORT, 'a ledger keeps one unit and one relation')
    FROM dataset WHERE unit <> NEW.unit OR relation <> NEW.relation;
END""",
    """CREATE TRIGGER charge_within_budget BEFORE INSERT ON charge BEGIN
  SELECT RAISE(ABORT, 'a charge starts unfinished') WHERE NEW.digest IS NOT NULL;
  SELECT RAISE(ABORT, 'charges of a dataset are numbered without gaps')
    WHERE NEW.sequence <> 1 + (SELECT count(*) FROM charge WHERE dataset = NEW.dataset);
  SELECT RAISE(ABORT, 'overspend') FROM dataset WHERE name = NEW.dataset AND (
    CAST(epsilon AS REAL) * 1.000000001 < CAST(NEW.epsilon AS REAL)
      + (SELECT total(CAST(epsilon AS REAL)) FROM charge WHERE dataset = NEW.dataset)
    OR CAST(delta AS REAL) * 1.000000001 < CAST(NEW.delta AS REAL)
      + (SELECT total(CAST(delta AS REAL)) FROM charge WHERE dataset = NEW.dataset));
END""",
    """CREATE TRIGGER charge_is_kept BEFORE DELETE ON charge BEGIN
  SELECT RAISE(ABORT, 'a charge is never removed');
END""",
    """CREATE TRIGGER charge_is_final BEFORE UPDATE ON charge
WHEN OLD.digest IS NOT NULL OR NEW.id <> OLD.id OR NEW.dataset <> OLD.dataset OR NEW.sequence <> OLD.sequence
  OR NEW.token <> OLD.token OR NEW.epsilon <> OLD.epsilon OR NEW.delta <> OLD.delta OR NEW.purpose <> OLD.purpose
  OR NEW.created <> OLD.created OR NEW.settled IS NOT OLD.settled
BEGIN
  SELECT RAISE(ABORT, 'a charge is never changed');
END""",
    """CREATE TRIGGER dataset_is_kept BEFORE DELETE ON dataset BEGIN
  SELECT RAISE(ABORT, 'a dataset is never removed');
END""",
    """CREATE TRIGGER dataset_is_final BEFORE UPDATE ON dataset BEGIN
  SELECT RAISE(ABORT, 'a dataset is never changed');
END""",
    """CREATE TRIGGER claim_is_kept BEFORE DELETE ON claim BEGIN
  SELECT RAISE(ABORT, 'a claim is never removed');
END""",
    """CREATE TRIGGER claim_is_final BEFORE UPDATE ON claim BEGIN
  SELECT RAISE(ABORT, 'a claim is never changed');
END""",
)

BINDING = (
    # What a charge's run folder was bound to when it first met its rows: nothing else is ever released for the charge.
    f"""CREATE TABLE binding (
  charge INTEGER PRIMARY KEY REFERENCES charge (id),
  content TEXT NOT NULL CHECK ({_HEX.format("content", 64)}),
  created TEXT NOT NULL
)""",
    """CREATE TRIGGER binding_is_kept BEFORE DELETE ON binding BEGIN
  SELECT RAISE(ABORT, 'a binding is never removed');
END""",
    """CREATE TRIGGER binding_is_final BEFORE UPDATE ON binding BEGIN
  SELECT RAISE(ABORT, 'a binding is never changed');
END""",
)

SCHEMA = (*_TABLES, *BINDING)


def _known(tables: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """``tables``, and what they look like in ledgers that were made before there were transitions, or reward functions:
    those go on with the units that they know."""
    earlier = (
        tuple(
            statement.replace(str(UNITS), str(UNITS[:count])).replace(_RELATION, f"relation IN {RELATIONS}")
            for statement in tables
        )
        for count in (2, 3)
    )
    return tables, *earlier


KNOWN = {2: _known(_TABLES), VERSION: _known(SCHEMA)}
"""What each version's ledgers are made of. One of version 2 gets its bindings when something is entered."""

_ENTRY = """WITH entry AS MATERIALIZED (
  SELECT key AS place, coalesce(json_extract(value, '$.purpose'), '') AS purpose, {}
  FROM json_each(?)
)""".format(
    ", ".join(
        f"json_extract(value, '$.{name}') AS {name}"
        for name in ("kind", "dataset", "epsilon", "delta", "unit", "relation", "time", "token", "content")
    )
)
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
"""Of datasets, charges and bindings: whether the table differs from the intents, which are given as a JSON list."""
