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


def joined_pandas():
    """Rows beside instants that pandas made itself, which wants both in one unit."""
    frame = pd.read_parquet(address("parquet")).sort_values("Datetime")
    first = frame["Datetime"].iloc[0]
    asked = pd.DataFrame({"Datetime": pd.date_range(first, periods=3, freq="h")})
    found = pd.merge_asof(asked, frame[["Datetime", "value"]], on="Datetime")
    expect(found["value"].notna().all(), "no value was found beside an instant")


def joined_polars():
    frame = pl.read_parquet(address("parquet")).sort("Datetime")
    first = frame["Datetime"][0]
    asked = pl.DataFrame({"Datetime": [first]}, schema={"Datetime": pl.Datetime("us", "UTC")})
    found = asked.join_asof(frame.select("Datetime", "value"), on="Datetime")
    expect(found["value"].null_count() == 0, "no value was found beside an instant")


def opened():
    """A file system over addresses, which asks for a length and for ranges."""
    import fsspec
    import pyarrow.parquet as pq

    with fsspec.open(address("parquet")) as file:
        whole(pq.read_table(file).to_pandas())


WORKS = {
    "polars.read_parquet": lambda: whole(pl.read_parquet(address("parquet"))),
    "polars.scan_parquet": lambda: few(pl.scan_parquet(address("parquet")).filter(LEAST).collect()),
    "polars.read_csv": lambda: whole(pl.read_csv(address("csv"))),
    "polars.scan_csv": lambda: few(pl.scan_csv(address("csv")).filter(LEAST).collect()),
    "polars.read_ndjson": lambda: whole(pl.read_ndjson(address("ndjson"))),
    "polars.scan_ndjson": lambda: few(pl.scan_ndjson(address("ndjson")).filter(LEAST).collect()),
    "pandas.read_parquet": lambda: whole(pd.read_parquet(address("parquet"))),
    "pandas.read_csv": lambda: whole(pd.read_csv(address("csv"))),
    "pandas.read_json": lambda: whole(pd.read_json(address("ndjson"), lines=True)),
    "pandas.merge_asof": joined_pandas,
    "polars.join_asof": joined_polars,
    "fsspec.open": opened,
}
# A body that a cache holds has to be read like one that was just written.
READS = 5


def repeated(work):
    def read():
        for _ in range(READS):
            work()

    return read


for name, work in WORKS.items():
    check(f"formats/address/{name}", repeated(work))

connection = duckdb.connect()
try:
    connection.execute("INSTALL httpfs; LOAD httpfs")
except duckdb.Error as error:
    say("formats/address/duckdb", "skipped", f"its extension httpfs cannot be fetched: {error}"[:200])
else:
    for form, source in {"parquet": "read_parquet", "csv": "read_csv", "ndjson": "read_json"}.items():
        query = f"SELECT value FROM {source}('{address(form)}')"
        check(f"formats/address/duckdb.{source}", lambda: whole(connection.sql(query).df()))
