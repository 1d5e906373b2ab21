"""Frame libraries that are given the address of an answer and nothing else."""

import sys

import duckdb
import pandas as pd
import polars as pl
from answers import expect
from outcomes import check, say

URL = sys.argv[1]
ROWS, TOTAL = int(sys.argv[2]), float(sys.argv[3])


def address(form):
    return f"{URL}&format={form}"


def whole(frame):
    expect(len(frame) == ROWS, f"{len(frame)} rows instead of {ROWS}")
    total = frame["value"].sum()
    expect(abs(total - TOTAL) < 1e-6, f"they add up to {total} instead of {TOTAL}")


def few(frame):
    expect(frame["value"].to_list() == [0, 1, 2], f"{frame['value'].to_list()} are not the least")


LEAST = pl.col("value") < 3
for name, work in {
    "polars.read_parquet": lambda: whole(pl.read_parquet(address("parquet"))),
    "polars.scan_parquet": lambda: few(pl.scan_parquet(address("parquet")).filter(LEAST).collect()),
    "polars.read_csv": lambda: whole(pl.read_csv(address("csv"))),
    "polars.scan_csv": lambda: few(pl.scan_csv(address("csv")).filter(LEAST).collect()),
    "polars.read_ndjson": lambda: whole(pl.read_ndjson(address("ndjson"))),
    "polars.scan_ndjson": lambda: few(pl.scan_ndjson(address("ndjson")).filter(LEAST).collect()),
    "pandas.read_parquet": lambda: whole(pd.read_parquet(address("parquet"))),
    "pandas.read_csv": lambda: whole(pd.read_csv(address("csv"))),
    "pandas.read_json": lambda: whole(pd.read_json(address("ndjson"), lines=True)),
}.items():
    check(f"formats/address/{name}", work)

connection = duckdb.connect()
try:
    connection.execute("INSTALL httpfs; LOAD httpfs")
except duckdb.Error as error:
    say("formats/address/duckdb", "skipped", f"its extension httpfs cannot be fetched: {error}"[:200])
else:
    for form, source in {"parquet": "read_parquet", "csv": "read_csv", "ndjson": "read_json"}.items():
        query = f"SELECT value FROM {source}('{address(form)}')"
        check(f"formats/address/duckdb.{source}", lambda: whole(connection.sql(query).df()))
