"""polars, with what it infers; instants of JSON are strings there until they are parsed."""

import polars as pl
from answers import named, read_all


def kind(dtype):
    if isinstance(dtype, pl.Datetime):
        return "instant" if dtype.time_zone == "UTC" else f"instant of {dtype.time_zone}"
    if dtype == pl.Boolean:
        return "flag"
    if dtype.is_integer():
        return "count"
    if dtype.is_float():
        return "number"
    if dtype == pl.Null:
        return "nothing"
    return "text" if dtype in (pl.String, pl.Categorical) else str(dtype)


def seen(frame):
    return {name: kind(dtype) for name, dtype in frame.schema.items()}, frame.to_dicts()


def text(read):
    def reader(path, columns):
        frame = read(path, {name: pl.String for name in named(columns, "text")})
        parsed = [
            pl.col(name).str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_zone="UTC")
            for name in named(columns, "instant")
            if frame.schema.get(name) == pl.String
        ]
        return seen(frame.with_columns(parsed))

    return reader


read_all(
    "polars",
    {
        "json": text(lambda path, _texts: pl.read_json(path, infer_schema_length=None)),
        "ndjson": text(lambda path, _texts: pl.read_ndjson(path, infer_schema_length=None)),
        "csv": text(
            lambda path, texts: pl.read_csv(
                path, try_parse_dates=True, infer_schema_length=None, schema_overrides=texts
            )
        ),
        "parquet": lambda path, _columns: seen(pl.read_parquet(path)),
        "arrow": lambda path, _columns: seen(pl.read_ipc_stream(path)),
    },
)
