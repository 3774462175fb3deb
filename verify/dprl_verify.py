#!/usr/bin/env python3
"""Check a results folder of dprl without dprl. This one file needs only Python 3.9 or newer and its standard library.

    python3 dprl_verify.py results/ [--public-key public.pem] [--json]

The last line of the output begins with one of seven verdicts, and the exit code says which verdict it is:

    0 holds           every check below passed: the release is as private as its certificate says
    2 does not hold   a file was changed, or the certificate contradicts itself or claims too little
    3 withdrawn       an advisory has withdrawn certificates of this kind: see SECURITY.md
    4 unreadable      there is no certificate, or a file is not a regular file or not strict JSON
    5 statement       the folder is unchanged, but does not claim that the release is private
    6 caution         it holds if a condition of an advisory is true, which the certificate does not show
    7 not checked     this verifier cannot check a part of the certificate, and says which

The verifier computes epsilon again from the certificate's event. For Gaussian releases it uses the closed form. For
Poisson-sampled releases it builds the distribution of privacy losses with its own code, rounded to the pessimistic
side. It also covers pure and parallel events and a Renyi filter. It checks every digest, the row of every mechanism
and the signature. It reads neither a ledger nor the log, so it cannot show that the release ran as stated: dprl's own
code and tests are for that. docs/certificate.md says what each check is for.
"""

from __future__ import annotations

import argparse
import base64
import cmath
import functools
import hashlib
import itertools
import json
import math
import operator
import os
import re
import stat
import sys
from datetime import datetime
from fractions import Fraction

CODES = {
    "holds": 0, "does not hold": 2, "withdrawn": 3, "unreadable": 4, "statement": 5, "caution": 6, "not checked": 7,
}  # fmt: skip
FILES = {"dprl.certificate/1": "certificate.json", "dprl.statement/1": "statement.json"}
DATA = ("estimate.json", "training.json")
STATUSES = ("verified", "as published", "unreviewed", "not private")
UNITS = ("person", "trajectory", "transition", "reward function")
# names: written by make docs
EVALUATING = (
    "gpope", "importance-sampling", "recommended", "td", "return-regression", "adassp", "lstd", "noisy-counts",
    "doubly-robust", "stratified", "survival", "best-linear-projection", "constant", "dptd", "neural-td",
)  # fmt: skip
LEARNING = ("functional-q", "dp-pg")
# end
FORMERLY_CERTIFIED = ("first-visit", "dp-sgda", "dp-gld", "dp-srm")
NARROW = {
    "transition": "A trajectory or a person as a whole: one visited state sits in two transitions, and every further "
    "transition of the same trajectory or person has a guarantee of its own.",
    "reward function": "States, actions and transitions, and how often a reward was asked for: only what the rewards "
    "are is protected.",
}
"""What a certificate for a narrow unit must say, word for word, that it does not protect."""
ADD_REMOVE = "add or remove one"
CLIPS = {"zero out one": ("zero-out", 1.0), "replace one": ("replace one", 2.0)}
"""Of people who interact once each: the relation as a row names it, and the clip norms that one person moves."""
SLACK, CALIBRATED = 1e-9, 1e-5
SAMPLER = 2.0**-49  # total variation distance of one draw of noise from the exact rounded Gaussian
TAIL = 1e-15  # probability of the tail that is cut off a distribution of privacy losses and charged to delta
LARGEST_ORDER = round(32 * 1.06**95)


class Verdict(Exception):
    """End of the check, with a verdict and the reason."""

    def __init__(self, verdict, why):
        super().__init__(why)
        self.verdict, self.why = verdict, why


def need(condition, why, verdict="does not hold"):
    """End the check with the verdict and the reason ``why`` if the condition does not hold."""
    if not condition:
        raise Verdict(verdict, why)


# --- what fields may be -----------------------------------------------------------------------------------------------


def whole(x):
    """Return whether x is a positive whole number."""
    return type(x) is int and 1 <= x <= 10**12


def positive(x):
    """Return whether x is a positive finite number."""
    return type(x) in (int, float) and 0.0 < x <= sys.float_info.max


def zero_or_positive(x):
    """Return whether x is a finite number that is not negative."""
    return positive(x) or (type(x) in (int, float) and x == 0)


def share(x):
    """Return whether x is a positive number of at most 1, within rounding."""
    return positive(x) and x <= 1.0 + SLACK


def text(x):
    """Return whether x is printable text."""
    return isinstance(x, str) and x.isprintable()


def number(x):
    """Return whether x is a float, or a whole number of at most 10^15 in absolute value."""
    return type(x) is float or (type(x) is int and abs(x) <= 10**15)


def mapping(x):
    """Return whether x is a JSON object."""
    return isinstance(x, dict)


def listed(check, most=None):
    """Return the check of a list of one to ``most`` values that each pass ``check``."""
    return lambda x: isinstance(x, list) and 1 <= len(x) <= (most or len(x)) and all(map(check, x))


def fields(table):
    """Return the check of an object that has exactly the fields of ``table``, each of which passes its check."""
    return lambda x: mapping(x) and set(x) == set(table) and all(check(x[name]) for name, check in table.items())


def optional(check):
    """Return the check of a field that is null or passes ``check``."""
    return lambda x: x is None or check(x)


def hexadecimal(digits):
    """Return the check of a text of exactly so many hexadecimal digits in lower case."""
    return lambda x: isinstance(x, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", x) is not None


def file_name(x):
    """Return whether x can name a file beside the certificate."""
    return text(x) and 0 < len(x) <= 200 and x not in (".", "..", *FILES.values()) and not set(x) & set("/\\")


def moment(x):
    """Return whether x is a time in UTC as dprl writes it, which exists and is not before 2024."""
    try:
        found = re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", x)
        return found is not None and datetime.strptime(x, "%Y-%m-%dT%H:%M:%SZ").year >= 2024
    except (TypeError, ValueError):
        return False


def anything(x):
    """Return True: the field may hold any value."""
    del x
    return True


FIELDS = {
    "schema": text, "status": text, "epsilon": optional(number), "delta": optional(number), "privacy_unit": text,
    "neighbouring_relation": lambda x: isinstance(x, str), "released": lambda x: isinstance(x, str),
    "not_protected": lambda x: x == [] or listed(text)(x), "mechanisms": lambda x: isinstance(x, list),
    "event": optional(mapping), "accountant": optional(lambda x: isinstance(x, str)),
    "epsilon_of_event": optional(number), "delta_of_event": optional(number), "delta_sampler": optional(number),
    "noise": lambda x: mapping(x) and not set(x) - {"secure", "source"} and text(x.get("source", "")),
    "assumed_public": mapping, "ledger": optional(mapping),
    "versions": lambda x: mapping(x) and all(map(text, x.values())), "created": moment,
    "artifacts": lambda x: mapping(x) and len(x) > 0 and all(map(file_name, x)) and all(map(HASH, x.values())),
    "digest": lambda x: isinstance(x, str),
}  # fmt: skip
HASH = hexadecimal(64)
PUBLIC = {
    "bounds": mapping, "environment": mapping, "protector": mapping, "policies": lambda x: isinstance(x, list),
    "hyper_parameters": lambda x: mapping(x) and all(map(fields({"value": anything, "provenance": text}), x.values())),
    "preconditions": lambda x: isinstance(x, list), "reading": text, "units": whole,
}  # fmt: skip
LEDGER = {"dataset": lambda x: text(x) and x != "", "charge": whole, "epsilon": number, "delta": number}
SIGNATURE = fields({"algorithm": lambda x: x == "Ed25519", "public_key": HASH, "value": hexadecimal(128)})

ANY = {"name": text, "purpose": text}
NOISE = {**ANY, "noise_multiplier": positive, "grid_step": positive, "steps": whole, "dimension": whole}
SUM = {**NOISE, "clip_norm": positive, "sampling_rate": share}
SHARED = {**SUM, "share": share}
FILTERED = {**SHARED, "levels": listed(positive, 64), "norm_multiplier": positive, "order": whole, "budget": positive}
SENSITIVE = {**NOISE, "sensitivity": positive, "std": positive}
USERS = {
    **SENSITIVE, "relation": text, "parts": listed(fields({"dimension": whole, "clip_norm": positive})), "noise": text,
    "column_norm": positive, "epochs": whole, "batch": whole,
}  # fmt: skip
PATH = {
    **SENSITIVE, "sup": positive, "lipschitz": zero_or_positive, "decay": positive, "paths": whole, "dimensions": whole,
    "spread": zero_or_positive, "largest_reward": zero_or_positive,
}  # fmt: skip
ROWS = {
    "Gaussian vector": SHARED,
    "Clipped Gaussian sum": SHARED,
    "Poisson-sampled clipped Gaussian sum": SHARED,
    "Clipped Gaussian sum and its norm, under a Renyi filter": FILTERED,
    "Poisson-sampled clipped Gaussian sum and its norm, under a Renyi filter": FILTERED,
    "Gaussian noise on sums over sampled users": SUM,
    "Noisy maximum": {**ANY, "epsilon": positive, "candidates": whole, "spread": whole, "rate": positive},
    "Gaussian noise on sums over users": USERS,
    "Gaussian noise on observed rewards": SENSITIVE,
    "Gaussian noise on reward gradients": {**SENSITIVE, "clip_norm": positive},
    "Gaussian process": PATH,
}
"""The fields of a mechanism's row, by its name."""


def check_fields(what, table, content):
    """Refuse an object that lacks a field of ``table``, has another field, or has a field that fails its check."""
    for name in (*table, *content):
        need(name in content, f"{what} lacks the field {name!r}")
        need(name in table, f"{what} has an unknown field {name!r}")
        need(table[name](content[name]), f"{what} has a field {name!r} of the wrong type, or out of its range")


# --- files ------------------------------------------------------------------------------------------------------------


def read(path, most=2**25, verdict="unreadable", into=None):
    """Return the bytes of a regular file of at most ``most`` bytes; refuse any other file.

    Where ``into`` is a digest, add the bytes to the digest instead, and return no bytes.
    """
    try:
        need(not os.path.islink(path), f"{path!a} is a link", verdict)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            need(stat.S_ISREG(status.st_mode), f"{path!a} is not a regular file", verdict)
            need(status.st_size <= most, f"{path!a} is larger than any such file that dprl writes", verdict)
            if into is None:
                return file.read(most)
            for block in iter(lambda: file.read(2**20), b""):
                into.update(block)
            return b""
    except (OSError, ValueError) as error:
        raise Verdict(verdict, f"{path!a} cannot be read ({type(error).__name__})") from error


def parse(path, raw):
    """Return the JSON object in ``raw``; refuse JSON that two readers could understand differently."""

    def once(items):
        need(len(dict(items)) == len(items), f"{path!a} has a key twice", "unreadable")
        return dict(items)

    def finite(x):
        need(math.isfinite(float(x)), f"{path!a} has a number out of range", "unreadable")
        return float(x)

    def small(x):
        need(len(x) <= 20 and abs(int(x)) < 2**63, f"{path!a} has a number out of range", "unreadable")
        return int(x)

    try:
        found = json.loads(
            raw.decode("utf-8"), object_pairs_hook=once, parse_constant=finite, parse_float=finite, parse_int=small
        )
    except (ValueError, RecursionError) as error:
        raise Verdict("unreadable", f"{path!a} is not strict JSON") from error
    need(mapping(found), f"{path!a} is not a JSON object", "unreadable")
    level = [found]
    for _ in range(32):
        level = [x for node in level for x in (node.values() if mapping(node) else node)]
        level = [x for x in level if isinstance(x, (dict, list))]
    need(not level, f"{path!a} is nested too deeply", "unreadable")
    return found


def dump(content, indent, separators):
    """Return the content as JSON in the only spelling that dprl writes."""
    return json.dumps(content, sort_keys=True, indent=indent, separators=separators, allow_nan=False).encode("ascii")


def read_certificate(folder):
    """Return the file name and the content of the folder's certificate or statement."""
    need(not os.path.isfile(folder), f"{folder!a} is a file: name the folder that it is in", "unreadable")
    need(os.path.isdir(folder), f"there is no folder {folder!a}", "unreadable")
    there = [name for name in FILES.values() if os.path.lexists(os.path.join(folder, name))]
    need(there, f"{folder!a} holds neither a certificate nor a statement", "unreadable")
    need(len(there) == 1, f"{folder!a} holds both a certificate and a statement")
    path = os.path.join(folder, there[0])
    raw = read(path)
    content = parse(path, raw)
    schema = content.get("schema")
    known = isinstance(schema, str) and FILES.get(schema) == there[0]
    need(known, f"{there[0]} has a schema that does not go with its name")
    spelled = raw == dump(content, 2, (",", ": ")) + b"\n"
    need(spelled, f"{there[0]} is not spelled as dprl spells it: it was changed")
    return there[0], content


def check_artifacts(folder, own, content):
    """Refuse a file that is missing, changed or not listed; return the content of the result files, by name."""
    data, names = {}, sorted(os.listdir(folder))
    for name in content["artifacts"]:
        need(name in names, f"{name!a} is missing, though {own} lists it")
    for name in names:
        if name == own:
            continue
        path = os.path.join(folder, name)
        need(name in content["artifacts"], f"{name!a} is not listed in {own}")
        found = hashlib.sha256()
        if name in DATA:
            raw = read(path, verdict="does not hold")  # read once, so that the bytes compared are those digested
            found.update(raw)
        else:
            read(path, 2**32, "does not hold", found)
        need(found.hexdigest() == content["artifacts"][name], f"{name!a} was changed")
        if name in DATA:
            data[name] = parse(path, raw)
    return data


# --- signature (RFC 8032) ---------------------------------------------------------------------------------------------

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
PEM = bytes.fromhex("302a300506032b6570032100")


def point_add(a, b):
    """Return the sum of two points of the curve, in extended coordinates."""
    x, y = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    t, z = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = y - x, z - t, z + t, y + x
    return e * f % P, g * h % P, f * g % P, e * h % P


def point_times(k, a):
    """Return k times the point a, in extended coordinates."""
    found = (0, 1, 1, 0)
    while k:
        found = point_add(found, a) if k & 1 else found
        a, k = point_add(a, a), k >> 1
    return found


def point(raw):
    """Return the point that 32 bytes encode, or None if they encode no point."""
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if (x * x - square) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P or (x == 0 and sign):
        return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P


def check_signature(own, content, key):
    """Return whether there is a signature; refuse a wrong signature, or a missing signature if a key was given."""
    if "signature" not in content:
        need(key is None, f"{own} is not signed, though a public key was given")
        return False
    signature = content["signature"]
    need(SIGNATURE(signature), f"the signature of {own} is not in the form that dprl writes")
    public, value = bytes.fromhex(signature["public_key"]), bytes.fromhex(signature["value"])
    if key is not None:
        body = b"".join(line for line in read(key).splitlines() if not line.startswith(b"-----"))
        try:
            raw = base64.b64decode(body, validate=True)
        except ValueError:
            raw = b""
        need(raw[:12] == PEM and len(raw) == 44, f"{key!a} is no Ed25519 public key in PEM")
        need(raw[12:] == public, f"{own} was signed by another key than {key!a}")
    signed = b"dprl certificate digest " + content["digest"].encode()
    s, a, r = int.from_bytes(value[32:], "little"), point(public), point(value[:32])
    k = int.from_bytes(hashlib.sha512(value[:32] + public + signed).digest(), "little") % L
    valid = s < L and a is not None and r is not None
    if valid:
        y = 4 * pow(5, P - 2, P) % P
        base = point(y.to_bytes(32, "little"))
        one, two = point_times(s, base), point_add(r, point_times(k, a))
        valid = (one[0] * two[2] - two[0] * one[2]) % P == 0 and (one[1] * two[2] - two[1] * one[2]) % P == 0
    need(valid, f"the signature of {own} is not valid")
    return True


# --- epsilon of an event ----------------------------------------------------------------------------------------------

FOREIGN = "the privacy event is not one that dprl emits"


def is_real(x):
    """Return whether x is a positive float, as events spell their numbers."""
    return type(x) is float and positive(x)


def is_rate(x):
    """Return whether x is a float that can be a sampling rate."""
    return is_real(x) and x <= 1.0


EVENTS = {
    "Gaussian": {"noise_multiplier": is_real},
    "PoissonSampled": {"sampling_probability": is_rate, "event": mapping},
    "SelfComposed": {"count": whole, "event": mapping},
    "Composed": {"events": listed(mapping)},
    "Pure": {"epsilon": is_real},
    "Parallel": {"events": lambda x: listed(mapping)(x) and len(x) >= 2},
    "RenyiFilter": {
        "order": lambda x: whole(x) and 2 <= x <= LARGEST_ORDER, "budget": is_real, "sampling_probability": is_rate,
        "noise_multipliers": listed(is_real, 64), "norm_multiplier": is_real, "steps": whole,
        "before": lambda x: x == [] or listed(is_real)(x),
    },
}  # fmt: skip
"""The fields of an event, by its type."""


def kind_of(event):
    """Return the type of an event; refuse an event whose fields are not those of its type."""
    kind = event.get("type")
    need(isinstance(kind, str) and kind in EVENTS, FOREIGN)
    known = fields({"type": anything, **EVENTS[kind]})(event)
    need(known, FOREIGN)
    return kind


def gaussians(event, count=1):
    """Return (rate, multiplier, count) for every Gaussian mechanism of an event, in order."""
    kind = kind_of(event)
    if kind == "Composed":
        return [part for one in event["events"] for part in gaussians(one, count)]
    if kind == "SelfComposed":
        need(kind_of(event["event"]) != "Composed", FOREIGN)
        return gaussians(event["event"], count * event["count"])
    rate = 1.0
    if kind == "PoissonSampled":
        rate, event = event["sampling_probability"], event["event"]
        kind = kind_of(event)
    need(kind == "Gaussian" and count <= 10**12 and event["noise_multiplier"] >= 1e-100, FOREIGN)
    return [(rate, event["noise_multiplier"], count)]


def branches(event):
    """Return the event of each part of the people; this is the event itself where the people are not divided."""
    return event["events"] if kind_of(event) == "Parallel" else [event]


def stated_parts(event):
    """Return the parts of an event, in order, in the form in which the rows of mechanisms state them."""
    kind = kind_of(event)
    if kind == "Pure":
        return [(event["epsilon"],)]
    if kind == "RenyiFilter":
        levels = tuple(event["noise_multipliers"])
        steps = (event["sampling_probability"], levels, event["steps"], event["norm_multiplier"], event["order"])
        return [*((1.0, z, 1) for z in event["before"]), (*steps, event["budget"])]
    return gaussians(event)


def merged(event):
    """Return the Poisson-sampled parts of an event, sorted, and the sum of the squared mu of all unsampled parts."""
    sampled, mu_squared = {}, 0.0
    for rate, multiplier, count in gaussians(event):
        if rate == 1.0:
            mu_squared += count / multiplier**2
        else:
            sampled[rate, multiplier] = sampled.get((rate, multiplier), 0) + count
    need(len(sampled) + (mu_squared > 0.0) <= 64, FOREIGN)
    return tuple(sorted((*key, count) for key, count in sampled.items())), mu_squared


def log_upper(x):
    """Return the logarithm of the probability that a standard normal variable is above x."""
    if x < 30.0:
        return math.log(0.5 * math.erfc(x / math.sqrt(2.0)))
    s = 1.0 / (x * x)
    return (
        -0.5 * x * x - math.log(x * math.sqrt(2.0 * math.pi)) + math.log1p(-s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s))))
    )


def gaussian_delta(epsilon, mu):
    """Return the exact delta of a Gaussian release at epsilon e: Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2)."""
    first, second = log_upper(epsilon / mu - mu / 2.0), epsilon + log_upper(epsilon / mu + mu / 2.0)
    return -math.exp(first) * math.expm1(min(second - first, 0.0))


@functools.cache
def epsilon_of_gaussian(mu, delta):
    """Return the epsilon at delta of unsampled Gaussian releases; mu squared is the sum of their squared mu."""
    low, high = 0.0, 1.0
    while gaussian_delta(high, mu) > delta:
        low, high = high, 2.0 * high
        if high > 1e8:
            return math.inf
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian_delta(middle, mu) > delta else (low, middle)
    return high


def width(rate, multiplier):
    """Return the width of the range of the losses of one step, out to ten standard deviations of its noise."""
    largest = (0.5 / multiplier + 10.0) / multiplier
    if rate == 1.0:
        return 2.0 * largest
    above = math.log1p(rate * math.expm1(largest)) if largest < 700.0 else largest + math.log(rate)
    return above + min(largest, -math.log1p(-rate))


def grid_of(parts):
    """Return the grid to which losses are rounded: that of dprl's accountant, so that both find the same epsilon."""
    finest, total, widest = 1e-4, 0.0, max(width(rate, z) for rate, z, _ in parts)
    for rate, z, count in parts:
        finest = min(finest, (0.02 if rate == 1.0 else 0.05) * rate / z)
        one = width(rate, z)
        mean = min(math.log1p(rate**2 * math.expm1(min(1.0 / z**2, 700.0))), rate / z**2)
        total += one + min(count * one, count * mean + 20.0 * math.sqrt(count * mean))
    refined, grid = max(finest, 1e-4 * 2.0**-12, widest / 1.5e5), 1e-4
    while grid / 2.0 >= refined:
        grid /= 2.0
    while grid < max(widest / 3e5, total / 4e6) and grid <= 0.1:
        grid *= 2.0
    return grid


def losses(rate, z, grid, adding):
    """Return the privacy losses of one Gaussian release of a Poisson sample: first place, masses, mass at infinity.

    ``adding`` says in which direction the neighbours differ. The losses are those of a mechanism that is at least as
    bad at every epsilon. Its delta equals the true delta at multiples of the grid. Between them it is linear in
    exp(epsilon), where the true delta is convex.
    """
    largest, mu = (0.5 / z + 10.0) / z, 1.0 / z
    edge = -math.log1p(-rate) if rate < 1.0 else math.inf
    above = math.log1p(rate * math.expm1(largest)) if largest < 700.0 else largest + math.log(rate)
    below = -math.log1p(rate * math.expm1(-largest)) if rate < 1.0 else largest
    low, high = (-above, below) if adding else (-below, above)
    first, last = math.floor(low / grid), math.ceil(high / grid)

    def delta(epsilon):
        signed = -epsilon if adding else epsilon
        if signed <= -edge:
            return 0.0 if adding else -math.expm1(epsilon)
        plain = math.log1p(math.expm1(signed) / rate) if signed < 700.0 else signed - math.log(rate)
        if not adding:
            return rate * gaussian_delta(plain, mu)
        return rate * math.exp(epsilon + plain) * gaussian_delta(-plain, mu)

    deltas = [min(max(delta(i * grid), 0.0), 1.0) for i in range(first, last + 1)]
    drops = [a - b for a, b in zip(deltas, deltas[1:])] + [0.0]
    up, down = -math.expm1(-grid), math.expm1(grid)
    masses = [max(a / up - b / down, 0.0) for a, b in zip(drops, drops[1:])]
    return first, [max(1.0 - deltas[-1] - math.fsum(masses), 0.0), *masses], deltas[-1]


def transform(values, roots):
    """Return the discrete Fourier transform of a list whose length is a power of two of at least 4."""
    if len(values) == 4:
        a, b, c, d = values
        turned = (b - d) * -1j
        return [a + c + b + d, a - c + turned, a + c - b - d, a - c - turned]
    even, odd = transform(values[::2], roots), transform(values[1::2], roots)
    odd = list(map(operator.mul, odd, roots[len(values)]))
    return [*map(operator.add, even, odd), *map(operator.sub, even, odd)]


def reach(parts, grid, sign):
    """Return the place beyond which, upwards or downwards, at most TAIL of the summed losses lies (Chernoff bound)."""
    best, farthest, ends = math.inf, 0, []
    for first, masses, _, count in parts:
        ends.append(max(sign * first, sign * (first + len(masses) - 1)))
        farthest += count * ends[-1]
    for step in range(-6, 14):
        fade, total = math.exp(-(2.0**step) * grid), -math.log(TAIL)
        for (_, masses, _, count), end in zip(parts, ends):
            powers = itertools.accumulate(itertools.chain((1.0,), itertools.repeat(fade)), operator.mul)
            generated = math.fsum(map(operator.mul, masses[::-1] if sign > 0 else masses, powers))
            total += count * (end * grid * 2.0**step + math.log(generated))
        if total / 2.0**step > best:  # the bound falls first, and then only rises
            break
        best = total / 2.0**step
    return sign * min(math.ceil(best / grid), farthest)


@functools.cache
def epsilon_of_sampled(sampled, mu_squared, delta):
    """Return an upper bound on the epsilon at delta of Poisson-sampled releases together with unsampled releases."""
    everybody = ((1.0, 1.0 / math.sqrt(mu_squared), 1),) if mu_squared > 0.0 else ()
    grid = grid_of((*sampled, *everybody))
    if grid > 0.1:
        return math.inf
    found = 0.0
    for adding in (False, True):
        parts = [(*losses(rate, z, grid, adding), count) for rate, z, count in (*sampled, *everybody)]
        low, high = reach(parts, grid, -1), reach(parts, grid, 1)
        size = 1 << max(high - low, 4).bit_length()
        need(size <= 2**22, "the privacy losses of its steps range too far for this verifier", "not checked")
        roots = {size: [cmath.rect(1.0, -2.0 * math.pi * k / size) for k in range(size // 2)]}
        for level in range(size.bit_length() - 2, 2, -1):
            roots[1 << level] = roots[2 << level][::2]
        whole_, offset, finite = [1.0 + 0.0j] * size, 0, 1.0
        for first, masses, infinite, count in parts:
            around = [0.0j] * size
            for i, mass in enumerate(masses):
                around[i % size] += mass
            whole_ = [a * b**count for a, b in zip(whole_, transform(around, roots))]
            offset, finite = offset + count * first, finite * (1.0 - infinite) ** count
        back = transform([x.conjugate() for x in whole_], roots)
        summed = [x.real / size for x in back]  # losses below the window come in again at its top: pessimistic
        turn = (low - offset) % size
        found = max(found, epsilon_of_losses(low, summed[turn:] + summed[:turn], 1.0 - finite + TAIL, grid, delta))
    return found


def epsilon_of_losses(low, masses, infinite, grid, delta):
    """Return the least epsilon at which the summed losses have a delta of at most ``delta``."""
    if infinite > delta:
        return math.inf
    above, weighted, fade = infinite, 0.0, math.exp(-grid)
    for i in range(len(masses) - 1, -1, -1):
        above, weighted = above + masses[i], weighted * fade + masses[i]
        if above - fade * weighted > delta:
            return max((low + i) * grid + math.log((above - delta) / weighted), 0.0)
    return 0.0


def up(x):
    """Return the least double that is at least the fraction x."""
    value = float(x)
    return value if Fraction(value) >= x else following(value)


def following(x):
    """Return the next larger double after x."""
    return math.nextafter(x, math.inf)


def gaussian_cost(order, z):
    """Return the RDP of one unsampled Gaussian release at an order, rounded up."""
    return following(order / (2.0 * z**2) * (1.0 + 2.0**-50))


def sampled_cost(order, rate, z):
    """Return the RDP of one Poisson-sampled Gaussian release at a whole order, rounded up."""
    if rate == 1.0:
        return gaussian_cost(order, z)
    logs = []
    for k in range(order + 1):
        choose = math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
        logs.append(choose + k * math.log(rate) + (order - k) * math.log1p(-rate) + (k * k - k) / (2.0 * z * z))
    top = max(logs)
    found = (top + math.log(math.fsum(math.exp(x - top) for x in logs))) / (order - 1)
    return max(found, 0.0) * (1.0 + 1e-10) + 1e-10 / (order - 1)


def epsilon_of_filter(event, delta):
    """Return the epsilon of a Renyi filter at delta (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    order = event["order"]
    rdp = up(Fraction(event["budget"]) + sum(Fraction(gaussian_cost(order, z)) for z in event["before"]))
    if delta**2 + math.expm1(-rdp) > 0.0:
        return 0.0
    return max(rdp + math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1), 0.0)


def epsilon_of(event, delta):
    """Return the epsilon of an event at delta, and the relative error within which this epsilon is known."""
    kind = kind_of(event)
    if kind == "Parallel":  # neighbours differ in only one part of the people
        return max(epsilon_of(one, delta) for one in event["events"])
    if kind == "Pure":
        return event["epsilon"], SLACK
    if kind == "RenyiFilter":
        return epsilon_of_filter(event, delta), SLACK
    sampled, mu_squared = merged(event)
    if sampled:
        return epsilon_of_sampled(sampled, mu_squared, delta), 5e-5
    if grid_of(((1.0, 1.0 / math.sqrt(mu_squared), 1),)) > 0.1:
        return math.inf, SLACK
    return epsilon_of_gaussian(math.sqrt(mu_squared), delta), SLACK


# --- rows of mechanisms -----------------------------------------------------------------------------------------------

SPREADS = (2**24, 2**23)
DEPTHS = {1: 20, 2: 10, 3: 7}
PATH_ERROR = {1: 2.0**-42, 2: 2.0**-40, 3: 2.0**-39}
OUTSIDE = 2.0**-49
SOME = "([0-9.e+-]+)"
REWARDS = re.compile(
    "reward functions(?:( of the state alone)|( of the state in which the action is taken)( and of the action)?,)?"
    rf" at most {SOME} apart(?:, whose difference has (?:Lipschitz constant at most {SOME}"
    rf"|mixed derivatives of order k at most {SOME} \({SOME}/{SOME}\)\^k) over the scaled observation)?"
)


def drawn(std, grid):
    """Return whether there is a proof of the noise sampler for this standard deviation on this grid."""
    return 2.0**24 * (1.0 - SLACK) <= std / grid <= 2.0**44 * (1.0 + SLACK)


def check_row(what, row):
    """Refuse a mechanism's row if there is no proof for its numbers."""
    table = ROWS[row["name"]]
    if "candidates" in table:
        cost = Fraction(row["rate"]) * row["spread"]
        need(row["candidates"] <= 1000 and cost <= Fraction(row["epsilon"]), f"{what} chooses for more than it states")
        return
    if table is PATH:
        sound = row["grid_step"] == answer_step(row["std"])
    elif "clip_norm" in table and "sensitivity" not in table:
        scales = [row["noise_multiplier"], row.get("norm_multiplier", row["noise_multiplier"]), *row.get("levels", ())]
        sound = 2.0**32 <= row["clip_norm"] / row["grid_step"] < 2.0**33
        sound = sound and all(drawn(float(z) * row["clip_norm"], row["grid_step"]) for z in scales)
        sound = sound and (table is not FILTERED or 2 <= row["dimension"] <= 2**16 + 1)
    else:
        sound = drawn(row["std"], row["grid_step"])
    sound = sound and (table is PATH or (row["dimension"] <= 2**22 and math.frexp(row["grid_step"])[0] == 0.5))
    need(sound, f"{what} has a grid or noise for which there is no proof")


def answer_step(std):
    """Return the grid step of noisy rewards, which are multiples of it."""
    return math.ldexp(1.0, math.frexp(std)[1] - 8)


def reward_relation(words):
    """Return (radius, Lipschitz constant or None, action ignored, mixed derivatives); None for other words."""
    found = REWARDS.fullmatch(words)
    if found is None:
        return None
    alone, state, action, radius, plain, mixed_radius, mixed, again = found.groups()
    radius_, slope = float(radius), float(plain or mixed) if plain or mixed else None
    same = repr(radius_) == radius and positive(radius_) and (slope is None or positive(slope))
    same = (
        same and (slope is None or repr(slope) == (plain or mixed)) and (not mixed or radius == mixed_radius == again)
    )
    same = same and (slope is not None or not state)
    return (radius_, slope, bool(alone or (state and not action)), bool(mixed)) if same else None


def path_sensitivity(row, relation, public):
    """Return a bound on the norm by which neighbouring reward functions move all paths of a Gaussian process."""
    radius, slope, of_state, mixed = relation
    facts, options = public["environment"], public["hyper_parameters"]
    of_q, dimensions = options["variant"]["value"] == "output", len(facts["observation"])
    need(whole(facts["actions"]) and slope is not None, "a path lacks what its proof asks for")
    if of_q:
        discount, rate = options["discount"]["value"], facts["transition_rate"]
        need(zero_or_positive(discount) and discount < 1.0 and zero_or_positive(rate), "returns have no bound")
        radius /= 1.0 - discount
        slope += discount * rate * radius
    sup, lipschitz, decay, spread = (row[name] for name in ("sup", "lipschitz", "decay", "spread"))
    least = 1.0 - SLACK
    proved = sup >= radius * least and lipschitz >= slope * least
    proved = proved and row["dimensions"] == dimensions and (dimensions == 1 or mixed) and dimensions in DEPTHS
    proved = proved and (row["paths"] == facts["actions"] or (row["paths"] == 1 and of_state and not of_q))
    proved = proved and (facts.get("on_grid") is True or spread >= 3.0 * row["dimension"] * 2.0 ** -DEPTHS[1] * least)
    proved = proved and (spread == 0.0 or dimensions == 1)
    need(proved, "a path of a mechanism is for other functions than the relation's")
    steep = lipschitz / sup
    norm = sup * (1.0 + decay / 2.0 + steep * steep * (1.0 + spread) / (2.0 * decay)) ** (dimensions / 2.0)
    return math.sqrt(row["paths"]) * norm


def path_delta(row, content):
    """Return what the finite precision of the paths adds to delta."""
    largest, std, dimensions = row["largest_reward"], row["std"], row["dimensions"]
    ends = content["assumed_public"]["environment"]["reward"]
    need(largest >= max(abs(float(end)) for end in ends), "precision was counted for smaller rewards")
    bits = DEPTHS[dimensions]
    error = PATH_ERROR[dimensions] * std + 2.0**-52 * largest
    least_std = std * math.tanh(row["decay"] * 2.0**-bits) ** (dimensions / 2.0)
    otherwise = 2.0 * error * (1.0 / answer_step(std) + 1.0 / (math.sqrt(2.0 * math.pi) * least_std))
    values = sum((bits + 2) ** i for i in range(dimensions + 1)) + (bits + 2) ** dimensions
    return (1.0 + math.exp(min(content["epsilon"], 700.0))) * row["dimension"] * (otherwise + values * OUTSIDE)


def column_norm(row):
    """Return the least column norm that is proved: how far a person in one round moves all rounds; 1 if independent."""
    steps, noise = row["steps"], row["noise"]
    need(steps <= 2**20, "a mechanism has more rounds than there is a proof for")
    banded = re.fullmatch("banded:([1-9][0-9]{0,6})", noise)
    need(banded or noise in ("independent", "square-root"), "a mechanism has noise of no known kind")
    bands = min(int(banded.group(1)), steps) if banded else 1 if noise == "independent" else steps
    if bands == 1:
        return 1.0
    column = [1.0]
    for k in range(1, bands):
        column.append(column[-1] * (2 * k - 1) / (2 * k))
    plain = math.sqrt(math.fsum(c * c for c in column))
    largest = 1.0 + (2.0 if bands == steps else steps) * 13.0 * row["noise_multiplier"] * plain * 1.01
    of_sums = 2.0 * (bands + 1) * 2.0**-53 * math.fsum(column) * largest
    extra = math.sqrt(row["dimension"]) * (2.0**-32 + of_sums)
    found = math.sqrt(1.0 + math.fsum((c + extra) ** 2 for c in column[1:]))
    need(found <= plain * 1.01 and largest <= 2.0**28, "correlated noise is not exact enough")
    return found


def check_users(row, name, clips):
    """Return the least sensitivity that a sum over people must state; refuse too small a column norm."""
    norm = math.hypot(*(part["clip_norm"] for part in row["parts"]))
    sound = row["relation"] == name and row["steps"] % row["epochs"] == 0
    sound = sound and (row["epochs"] == 1 or row["noise"] == "independent")
    sound = sound and sum(part["dimension"] for part in row["parts"]) == row["dimension"]
    need(sound and row["grid_step"] <= norm * 2.0**-32, "a sum over people is not one that is proved")
    need(row["column_norm"] >= column_norm(row) * (1.0 - SLACK), "a mechanism states too small a column norm")
    return clips * norm


def check_noise(content):
    """Refuse rows with less noise than the relation requires; return what finite precision adds to delta."""
    stated, rows, delta = content["neighbouring_relation"], content["mechanisms"], 0.0
    kinds = [ROWS[row["name"]] for row in rows]
    if content["privacy_unit"] == "reward function":
        relation = reward_relation(stated)
        need(relation, "the relation does not say how far apart two reward functions are")
        need(mapping(content["assumed_public"].get("environment")) and rows, "there is no environment or mechanism")
        need(all("sensitivity" in kind and kind is not USERS for kind in kinds), "a mechanism is for other neighbours")
    elif USERS in kinds:
        need(stated in CLIPS and all(kind is USERS for kind in kinds), "the relation does not say which are neighbours")
    else:
        need(stated == ADD_REMOVE, "the accountant answers for another relation")
        need(all("sensitivity" not in kind for kind in kinds), "a mechanism does not protect the units of the relation")
        return 0.0
    for row, kind in zip(rows, kinds):
        if kind is USERS:
            least, column = check_users(row, *CLIPS[stated]), row["column_norm"]
        elif kind is PATH:
            least, column = path_sensitivity(row, relation, content["assumed_public"]), 1.0
            delta += path_delta(row, content)
        else:
            need("clip_norm" in row or row["dimension"] == 1, "a reward is one number, and each of them is a step")
            least, column = relation[0] * row.get("clip_norm", 1.0), 1.0
        enough = row["sensitivity"] >= least * (1.0 - SLACK)
        enough = enough and row["std"] >= row["noise_multiplier"] * row["sensitivity"] * column * (1.0 - SLACK)
        need(enough, "a mechanism states less noise than its relation asks for")
    return delta


def check_shares(event, rows):
    """Refuse rows whose shares do not add up to the whole budget, or are not what a Renyi filter spends."""
    shares = [row["share"] for row in rows if "share" in row]
    need(not shares or abs(math.fsum(shares) - 1.0) <= 1e-6, "the shares of the mechanisms do not add up to the budget")
    if kind_of(event) != "RenyiFilter":
        return
    order, budget = event["order"], event["budget"]
    parts = [*(Fraction(gaussian_cost(order, z)) for z in event["before"]), Fraction(budget)]
    for row, part in zip(rows, parts):
        same = "share" in row and math.isclose(row["share"], float(part / sum(parts)), rel_tol=1e-6)
        need(same, "the shares of the mechanisms are not what the filter spends")
    need("levels" in rows[-1], "the last mechanism is under no filter")

    def runs(scale):
        sum_, norm = rows[-1]["noise_multiplier"] * scale, rows[-1]["norm_multiplier"] * scale
        one = sampled_cost(order, event["sampling_probability"], 1.0 / math.hypot(1.0 / sum_, (1.0 + 2.0**-8) / norm))
        return one <= budget and event["steps"] * math.ceil(Fraction(one) * 2**40 / Fraction(budget)) <= 2**40

    least = runs(1.0 + CALIBRATED) and not runs(1.0 - CALIBRATED)
    need(least, "the noise multiplier is not the least that the filter lets run to the end")


# --- the certificate --------------------------------------------------------------------------------------------------


def check_content(own, content):
    """Refuse a file whose fields are missing, unknown or of a wrong type, or contradict each other."""
    check_fields(own, {**FIELDS, **({"signature": anything} if "signature" in content else {})}, content)
    public, unit, status = content["assumed_public"], content["privacy_unit"], content["status"]
    check_fields("what is assumed public", {name: PUBLIC.get(name, anything) for name in public}, public)
    need(status in STATUSES and unit in UNITS, f"{own} has an unknown status or privacy unit")
    need(NARROW.get(unit) in (None, *content["not_protected"]), f"{own} does not say what its unit leaves unprotected")
    secure = content["noise"].get("secure")
    need(isinstance(secure, bool), f"{own} does not say whether its noise was secure")
    certificate = status == "verified" and secure
    need(certificate == (own == "certificate.json"), "only a verified release with secure noise has a certificate")
    if content["ledger"] is not None:
        check_fields("the ledger block", LEDGER, content["ledger"])
        same = all(content["ledger"][name] == content[name] for name in ("epsilon", "delta"))
        need(same, "the ledger block has another epsilon or delta than the claim")


def check_rows(content, parts):
    """Refuse mechanisms that are not the parts of the event, in the same order and with the same numbers."""
    stated = []
    for row in content["mechanisms"]:
        need(mapping(row), "a mechanism is no object")
        if content["status"] == "verified":
            name = row.get("name")
            need(isinstance(name, str) and name in ROWS, "a mechanism is none that this verifier knows")
            check_fields(f"the mechanism {name!r}", ROWS[name], row)
            check_row(f"the mechanism {name!r}", row)
        if "candidates" in row:
            stated.append((row.get("epsilon"),))
            continue
        of_filter = [row.get(name) for name in ("norm_multiplier", "order", "budget")]
        filtered = of_filter != [None] * 3
        noise = row.get("levels" if filtered else "noise_multiplier")
        counted = row.get("epochs" if row.get("name") == "Gaussian noise on sums over users" else "steps")
        rate, steps = (1 if n is None else n for n in (row.get("sampling_rate"), counted))
        stated.append((rate, tuple(noise) if isinstance(noise, list) else noise, steps, *(of_filter * filtered)))
    need(stated == list(parts), "the mechanisms are not those of the privacy event")


def check_units(content):
    """Refuse a delta that would allow a mechanism to reveal one unit entirely."""
    public = content["assumed_public"]
    if content["privacy_unit"] == "reward function":
        units = public.get("hyper_parameters", {}).get("people", {"value": None})["value"]
        if units is None:
            return
    else:
        units = public["bounds"].get("units") if "bounds" in public else public.get("units")
    need(whole(units), "it is not declared how many privacy units there are")
    need(content["delta"] < 1.0 / units, "delta is at least one over the declared units: it protects nobody")


def check_claim(content):
    """Compute epsilon and the cost of the draws of noise again; refuse a smaller claim; return epsilon."""
    event, verified = content["event"], content["status"] == "verified"
    if event is None:
        need(not verified, "a verified release has no privacy event")
        return None
    known = branches(event)
    check_rows(content, [part for one in known for part in stated_parts(one)])
    of_event, delta, sampler = (content[name] for name in ("epsilon_of_event", "delta_of_event", "delta_sampler"))
    probable = delta is not None and 0.0 < delta < 1.0 and (sampler is None or 0.0 <= sampler < 1.0)
    need(probable, "delta_of_event and delta_sampler must be probabilities")
    epsilon, known_to = epsilon_of(event, delta)
    need(of_event is not None or not (verified or math.isfinite(epsilon)), "the epsilon of the event is not stated")
    if of_event is not None:
        upper = epsilon * (1.0 + ROUNDED) + SLACK
        same = epsilon * (1.0 - known_to) - SLACK <= of_event <= upper and math.isfinite(epsilon)
        need(same, f"epsilon_of_event is not what its event has, which is {epsilon:.9g}")
    if not verified:
        return epsilon
    claim, total = content["epsilon"], content["delta"]
    complete = None not in (claim, total, sampler) and claim > 0.0 and 0.0 < total < 1.0
    need(complete, "a verified release lacks a positive epsilon and delta")
    precision = check_noise(content)
    alone = len(known) == 1 or content["neighbouring_relation"] == ADD_REMOVE
    need(alone, "there is no proof of parts of the people for this relation")
    check_units(content)
    rows = list(content["mechanisms"])
    for one in known:
        count = len(stated_parts(one))
        check_shares(one, rows[:count])
        rows = rows[count:]
    need(of_event <= claim * (1.0 + SLACK) + SLACK, "it claims a smaller epsilon than its event has")
    draws = sum(row["dimension"] * row["steps"] for row in content["mechanisms"] if "candidates" not in row)
    cost = max(precision, (1.0 + math.exp(min(claim, 700.0))) * draws * SAMPLER)
    need(not content["noise"]["secure"] or sampler >= cost * (1.0 - SLACK), "delta_sampler is less than its draws cost")
    need(delta + sampler <= total * (1.0 + SLACK), "delta_of_event and delta_sampler exceed the delta it claims")
    return epsilon


ROUNDED = 1e-3
"""By how much more than the closed form, relatively, a stated epsilon may be: dprl rounds losses upwards."""


def check_choice(content, data):
    """Refuse an algorithm that dprl does not have, and parts of the people that do not make the stated choice."""
    need(len(data) == 1, "it must come with one of estimate.json and training.json")
    ((file, stated),) = data.items()
    algorithm = stated.get("algorithm")
    known = isinstance(algorithm, str) and algorithm in (
        (*EVALUATING, *FORMERLY_CERTIFIED) if file == DATA[0] else LEARNING
    )
    need(known, "it certifies an algorithm that this verifier does not know")
    choice, public = stated.get("choice"), content["assumed_public"]
    parts = content["event"]["events"] if content["event"]["type"] == "Parallel" else []
    learner = public.get("learner")
    firsts = ("Pure",) if learner is None else ("Gaussian", "SelfComposed")
    two = len(parts) == 2 and parts[0]["type"] in firsts
    need(two or not (parts or choice), "there are parts of the people of which none makes a choice")
    if not two:
        return
    row, policies = content["mechanisms"][0], public["policies"]
    part = public["hyper_parameters"]["choosing_share"]["value"]
    same = choice["share"] == part and type(part) is float and 0.0 < part < 1.0 and type(choice["policy"]) is str
    if learner is not None:
        same = same and row["steps"] == learner["rounds"] and choice["learner"] == learner
    else:
        rules = public.get("rules")
        same = same and row["candidates"] == choice["of"] and row["spread"] in SPREADS
        if rules is None:
            same = same and choice["of"] == len(policies) and choice["policy"] in policies
        else:
            counts = [*rules["levels"].values(), rules["own"]]
            same = same and all(type(n) is int and n >= 0 for n in counts) and sum(counts) == choice["of"]
            same = same and choice["rules"] == rules and rules["own"] == len(policies)
    need(same, "the choice of the release is not the one that the certificate states")


def option(content, name):
    """Return the value of an option on the certificate, or None if the certificate does not state the option."""
    return content["assumed_public"].get("hyper_parameters", {}).get(name, {"value": None})["value"]


def names_of(content):
    """Return the names of the certificate's mechanisms."""
    return {row["name"] for row in content["mechanisms"]}


ADVISORIES = (
    ("DPRL-2026-01", True, lambda c: "Gaussian noise on sums over sampled users" in names_of(c)),
    (
        "DPRL-2026-02",
        True,
        lambda c: (
            "Gaussian process" in names_of(c)
            and option(c, "variant") == "functional"
            and c["assumed_public"].get("environment", {}).get("name") != "interval-walk"
        ),
    ),
    ("DPRL-2026-03", False, lambda c: c["privacy_unit"] == "reward function"),
    ("DPRL-2026-04", False, lambda c: c["event"]["type"] == "RenyiFilter"),
    (
        "DPRL-2026-05",
        False,
        lambda c: str(c["assumed_public"].get("reading", "")).startswith("People are told apart by name"),
    ),
)
"""Advisories about certificates before version 0.2.0: name, whether it withdraws, of which certificates it speaks."""


def check_advisories(content):
    """Return the advisories that caution about the certificate; refuse it if an advisory has withdrawn it."""
    found = re.match(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})", content["versions"].get("dprl", ""))
    if found is not None and tuple(map(int, found.groups())) >= (0, 2, 0):
        return []
    due = [(name, withdraws) for name, withdraws, speaks_of in ADVISORIES if speaks_of(content)]
    for name, withdraws in due:
        need(not withdraws, f"{name} has withdrawn it: SECURITY.md of dprl says why", "withdrawn")
    return [name for name, _ in due]


def check(folder, key=None):
    """Return the verdict on a folder, the reason, and the facts that were found."""
    found = {}
    try:
        own, content = read_certificate(folder)
        check_content(own, content)
        body = {name: value for name, value in content.items() if name not in ("digest", "signature")}
        same = hashlib.sha256(dump(body, None, (",", ":"))).hexdigest() == content["digest"]
        need(same, f"{own} does not match its own digest: it was changed")
        found["signed"] = check_signature(own, content, key)
        data = check_artifacts(folder, own, content)
        found |= {name: content[name] for name in ("status", "epsilon", "delta", "privacy_unit", "digest")}
        epsilon = check_claim(content)
        found["epsilon_recomputed"] = epsilon if epsilon is not None and math.isfinite(epsilon) else None
        for file, stated in data.items():
            for name in ("status", "epsilon", "delta"):
                same = name in stated and stated[name] == content[name] and not isinstance(stated[name], bool)
                need(same, f"{name} in {file} is not that of {own}")
        if own != "certificate.json":
            return "statement", f"unchanged, and it stands for no private release ({content['status']})", found
        check_choice(content, data)
        cautions = check_advisories(content)
    except Verdict as end:
        return end.verdict, end.why, found
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, OSError) as error:
        return "does not hold", f"a field or file is not what it may be ({type(error).__name__})", found
    if cautions:
        return "caution", f"it holds if what SECURITY.md of dprl asks for under {', '.join(cautions)} is true", found
    return "holds", "every check passed", found


def main():
    """Check the folder that the command line names; exit with the code of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="a results folder")
    parser.add_argument("--public-key", help="PEM public key: the signature must be there and be made by its owner")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    verdict, why, found = check(given.results, given.public_key)
    if given.json:
        print(json.dumps({"verdict": verdict, "why": why, **found}))
    else:
        if verdict in ("holds", "caution"):
            claim = f"epsilon {found['epsilon']}, delta {found['delta']} per {found['privacy_unit']}"
            print(f"Claim: {claim}. Recomputed from its event: epsilon {found['epsilon_recomputed']:.6g}.")
        if "signed" in found:
            whose = "signed by the given key" if given.public_key else "signed, by whom was not asked"
            print(f"Signature: {whose if found['signed'] else 'none, so this shows accidents, not tampering'}.")
        print(f"{verdict}: {why}.")
    sys.exit(CODES[verdict])


if __name__ == "__main__":
    main()
