"""DuckDB: every format by its own reader, Arrow through pyarrow, as its users hand it over."""

import duckdb
import pyarrow.ipc
from answers import read_all

connection = duckdb.connect()
connection.execute("SET TimeZone = 'UTC'")
NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"}
NUMBERS |= {"UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}


def kind(type_name):
    if type_name == "TIMESTAMP WITH TIME ZONE":
        return "instant"
    if type_name == "BOOLEAN":
        return "flag"
    if type_name in NUMBERS:
        return "count"
    if type_name in ("DOUBLE", "FLOAT"):
        return "number"
    return "text" if type_name == "VARCHAR" or type_name.startswith("ENUM") else type_name


def seen(relation):
    names = relation.columns
    kinds = {name: kind(str(dtype)) for name, dtype in zip(names, relation.types)}
    return kinds, [dict(zip(names, row)) for row in relation.fetchall()]


TYPES = {
    "instant": "TIMESTAMPTZ",
    "number": "DOUBLE",
    "count": "BIGINT",
    "flag": "BOOLEAN",
    "text": "VARCHAR",
}


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def struct(columns):
    return ", ".join(f"{literal(name)}: '{TYPES[kind]}'" for name, kind in columns.items())


def json(source):
    """With the columns declared: there is no other way to have a text kept as it is."""

    def reader(path, columns):
        declared = f"columns = {{{struct(columns)}}}"
        return seen(connection.sql(f"SELECT * FROM {source}('{path}', {declared})"))

    return reader


def csv(path, columns):
    texts = {name: kind for name, kind in columns.items() if kind == "text"}
    given = f"types = {{{struct(texts)}}}"
    return seen(connection.sql(f"SELECT * FROM read_csv('{path}', {given})"))


def arrow(path, _columns):
    with open(path, "rb") as file:
        table = pyarrow.ipc.open_stream(file).read_all()
    return seen(connection.from_arrow(table))


read_all(
    "duckdb",
    {
        "json": json("read_json"),
        "ndjson": json("read_ndjson"),
        "csv": csv,
        "parquet": lambda path, _columns: seen(connection.read_parquet(path)),
        "arrow": arrow,
    },
)
