-- The tables of a ledger. Statements are separated by an empty line, and SQLite keeps their text: never change one.

-- One row: who this ledger is, its secret, and how much of the intents it has entered.
CREATE TABLE book (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  ledger TEXT NOT NULL CHECK (ledger IS NULL OR (length(ledger) = 32 AND ledger NOT GLOB '*[^0-9a-f]*')),
  secret BLOB NOT NULL CHECK (typeof(secret) = 'blob' AND length(secret) = 32),
  entries INTEGER NOT NULL,
  size INTEGER NOT NULL,
  digest TEXT NOT NULL CHECK (digest IS NULL OR (length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*'))
);

-- Amounts are decimal text: its floating-point value is checked here, the exact one in Python.
CREATE TABLE dataset (
  name TEXT PRIMARY KEY NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  epsilon TEXT NOT NULL CHECK (typeof(epsilon) = 'text' AND CAST(epsilon AS REAL) > 0),
  delta TEXT NOT NULL CHECK (typeof(delta) = 'text' AND CAST(delta AS REAL) > 0 AND CAST(delta AS REAL) < 1),
  unit TEXT NOT NULL CHECK (unit IN ('person', 'trajectory', 'transition', 'reward function')),
  relation TEXT NOT NULL CHECK (CASE unit WHEN 'reward function' THEN relation GLOB 'reward functions *' ELSE relation IN ('add or remove one', 'zero out one', 'replace one') END),
  created TEXT NOT NULL
);

CREATE TABLE charge (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dataset TEXT NOT NULL REFERENCES dataset (name),
  sequence INTEGER NOT NULL CHECK (sequence >= 1),
  token TEXT NOT NULL UNIQUE CHECK (token IS NULL OR (length(token) = 32 AND token NOT GLOB '*[^0-9a-f]*')),
  epsilon TEXT NOT NULL CHECK (typeof(epsilon) = 'text' AND CAST(epsilon AS REAL) > 0),
  delta TEXT NOT NULL CHECK (typeof(delta) = 'text' AND CAST(delta AS REAL) > 0 AND CAST(delta AS REAL) < 1),
  purpose TEXT NOT NULL CHECK (length(purpose) <= 500),
  created TEXT NOT NULL,
  settled TEXT,
  digest TEXT CHECK (digest IS NULL OR (length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*')),
  finished TEXT CHECK ((finished IS NULL) = (digest IS NULL)),
  UNIQUE (dataset, sequence)
);

CREATE TABLE claim (
  fingerprint TEXT PRIMARY KEY NOT NULL CHECK (fingerprint IS NULL OR (length(fingerprint) = 64 AND fingerprint NOT GLOB '*[^0-9a-f]*')),
  dataset TEXT NOT NULL REFERENCES dataset (name),
  created TEXT NOT NULL
);

-- The tables defend themselves: nothing is taken back, nothing is changed, and no budget is exceeded.
CREATE TRIGGER book_is_kept BEFORE DELETE ON book BEGIN
  SELECT RAISE(ABORT, 'the ledger itself is never removed');
END;

CREATE TRIGGER book_goes_forward BEFORE UPDATE ON book
WHEN NEW.ledger <> OLD.ledger OR NEW.secret <> OLD.secret OR NEW.entries <= OLD.entries OR NEW.size <= OLD.size
BEGIN
  SELECT RAISE(ABORT, 'the count of intents only grows');
END;

CREATE TRIGGER dataset_has_the_ledgers_unit BEFORE INSERT ON dataset BEGIN
  SELECT RAISE(ABORT, 'a ledger keeps one unit and one relation')
    FROM dataset WHERE unit <> NEW.unit OR relation <> NEW.relation;
END;

CREATE TRIGGER charge_within_budget BEFORE INSERT ON charge BEGIN
  SELECT RAISE(ABORT, 'a charge starts unfinished') WHERE NEW.digest IS NOT NULL;
  SELECT RAISE(ABORT, 'charges of a dataset are numbered without gaps')
    WHERE NEW.sequence <> 1 + (SELECT count(*) FROM charge WHERE dataset = NEW.dataset);
  SELECT RAISE(ABORT, 'overspend') FROM dataset WHERE name = NEW.dataset AND (
    CAST(epsilon AS REAL) * 1.000000001 < CAST(NEW.epsilon AS REAL)
      + (SELECT total(CAST(epsilon AS REAL)) FROM charge WHERE dataset = NEW.dataset)
    OR CAST(delta AS REAL) * 1.000000001 < CAST(NEW.delta AS REAL)
      + (SELECT total(CAST(delta AS REAL)) FROM charge WHERE dataset = NEW.dataset));
END;

CREATE TRIGGER charge_is_kept BEFORE DELETE ON charge BEGIN
  SELECT RAISE(ABORT, 'a charge is never removed');
END;

CREATE TRIGGER charge_is_final BEFORE UPDATE ON charge
WHEN OLD.digest IS NOT NULL OR NEW.id <> OLD.id OR NEW.dataset <> OLD.dataset OR NEW.sequence <> OLD.sequence
  OR NEW.token <> OLD.token OR NEW.epsilon <> OLD.epsilon OR NEW.delta <> OLD.delta OR NEW.purpose <> OLD.purpose
  OR NEW.created <> OLD.created OR NEW.settled IS NOT OLD.settled
BEGIN
  SELECT RAISE(ABORT, 'a charge is never changed');
END;

CREATE TRIGGER dataset_is_kept BEFORE DELETE ON dataset BEGIN
  SELECT RAISE(ABORT, 'a dataset is never removed');
END;

CREATE TRIGGER dataset_is_final BEFORE UPDATE ON dataset BEGIN
  SELECT RAISE(ABORT, 'a dataset is never changed');
END;

CREATE TRIGGER claim_is_kept BEFORE DELETE ON claim BEGIN
  SELECT RAISE(ABORT, 'a claim is never removed');
END;

CREATE TRIGGER claim_is_final BEFORE UPDATE ON claim BEGIN
  SELECT RAISE(ABORT, 'a claim is never changed');
END;

-- What a charge's run folder was bound to when it first met its rows: nothing else is ever released for the charge.
CREATE TABLE binding (
  charge INTEGER PRIMARY KEY REFERENCES charge (id),
  content TEXT NOT NULL CHECK (content IS NULL OR (length(content) = 64 AND content NOT GLOB '*[^0-9a-f]*')),
  created TEXT NOT NULL
);

CREATE TRIGGER binding_is_kept BEFORE DELETE ON binding BEGIN
  SELECT RAISE(ABORT, 'a binding is never removed');
END;

CREATE TRIGGER binding_is_final BEFORE UPDATE ON binding BEGIN
  SELECT RAISE(ABORT, 'a binding is never changed');
END;
