"""Answers of the read API, as one tool reads them, beside the rows of the JSON contract.

The driver's list names each answer's file, its format, and the kind of each column: instant,
number, count, flag or text. A tool gives a reader a format, which returns the kinds it saw and
the rows as plain dictionaries. The expected rows come from Python's own json module."""

import json
import math
import sys
from datetime import datetime, timezone

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect, say  # noqa: E402

TEXT_FORMATS = {"json", "ndjson", "csv"}


def milliseconds(value):
    """An instant of any tool as milliseconds since 1970, exactly; a naive one is refused."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    expect(value.tzinfo is not None, f"{value!r} has no time zone")
    since = value - datetime(1970, 1, 1, tzinfo=timezone.utc)
    micros = since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
    expect(micros % 1000 == 0, f"{value!r} has parts of a millisecond")
    return micros // 1000


def plain(value, kind):
    """One cell as it is compared. NaN, NaT and null are one absence."""
    if value is None or value != value or str(value) in ("NaT", "<NA>"):
        return None
    if kind == "instant":
        return milliseconds(value)
    if kind == "number":
        return float(value)
    if kind == "count":
        return int(value)
    if kind == "flag":
        expect(value in (True, False), f"{value!r} is no flag")
        return bool(value)
    return str(value)


def same(left, right):
    if isinstance(left, float) and isinstance(right, float):
        # Both are doubles: the same shortest decimal, the same bits.
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and left == right


def same_names(rows, columns):
    names = list(rows[0]) if rows else list(columns)
    expect(names == list(columns), f"columns {names} instead of {list(columns)}")


def compare(rows, expected, columns):
    """Column by column in their order: names are another check."""
    expect(len(rows) == len(expected), f"{len(rows)} rows instead of {len(expected)}")
    for index, (row, wanted) in enumerate(zip(rows, expected)):
        for (name, kind), cell in zip(columns.items(), row.values(), strict=True):
            left, right = plain(cell, kind), plain(wanted.get(name), kind)
            expect(same(left, right), f"row {index}, {name}: {left!r} instead of {right!r}")


def kinds_fit(kinds, columns, is_text):
    """A text format has no types: an instant may come as text there, and a number as a count."""
    loose = {("instant", "text"), ("number", "count")}
    loose |= {("number", "nothing"), ("instant", "nothing")}
    for (name, kind), seen in zip(columns.items(), kinds.values(), strict=True):
        fits = seen == kind or (is_text and (kind, seen) in loose)
        expect(fits, f"{name} is {seen}, and should be {kind}")


def read_all(tool, readers):
    """Every answer whose format the tool reads, by its types and by its rows."""
    with open(sys.argv[1]) as file:
        answers = json.load(file)
    for answer in answers:
        name, form, columns = answer["name"], answer["format"], answer["columns"]
        if form not in readers:
            continue
        with open(answer["expected"]) as file:
            expected = json.load(file)
        case = f"formats/{tool}/{name}.{form}"
        try:
            kinds, rows = readers[form](answer["path"], columns)
        except Exception as error:
            say(case, "failed", f"{type(error).__name__}: {error}"[:500])
            continue
        is_text = form in TEXT_FORMATS
        if expected or not is_text:
            check(f"{case}/types", lambda: kinds_fit(kinds, columns, is_text))
        check(f"{case}/names", lambda: same_names(rows, columns))
        check(f"{case}/rows", lambda: compare(rows, expected, columns))


def named(columns, kind):
    """The columns of a kind, for readers that are told which they are. Text must be named where a
    reader would take its form for something else: local times with offsets, or UUIDs."""
    return [name for name, own in columns.items() if own == kind]
