"""pandas, as its users read files: instants of text formats are parsed when asked for."""

import pandas as pd
from answers import named, read_all


def kind(dtype):
    if isinstance(dtype, pd.DatetimeTZDtype):
        return "instant" if str(dtype.tz) in ("UTC", "utc", "Etc/UTC") else f"instant of {dtype.tz}"
    if isinstance(dtype, pd.CategoricalDtype):
        return kind(dtype.categories.dtype)
    if pd.api.types.is_bool_dtype(dtype):
        return "flag"
    if pd.api.types.is_integer_dtype(dtype):
        return "count"
    if pd.api.types.is_float_dtype(dtype):
        return "number"
    return "text" if pd.api.types.is_string_dtype(dtype) or dtype == object else str(dtype)


def seen(frame):
    kinds = {name: kind(dtype) for name, dtype in frame.dtypes.items()}
    return kinds, frame.astype(object).to_dict("records")


def text(read):
    def reader(path, columns):
        frame = read(path)
        for name in named(columns, "instant"):
            if name in frame:
                frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
        return seen(frame)

    return reader


def arrow(path, _columns):
    import pyarrow.ipc

    with open(path, "rb") as file:
        return seen(pyarrow.ipc.open_stream(file).read_pandas())


read_all(
    "pandas",
    {
        "json": text(lambda path: pd.read_json(path, convert_dates=False, precise_float=True)),
        "ndjson": text(
            lambda path: pd.read_json(path, lines=True, convert_dates=False, precise_float=True)
        ),
        "csv": text(lambda path: pd.read_csv(path, float_precision="round_trip")),
        "parquet": lambda path, _columns: seen(pd.read_parquet(path)),
        "arrow": arrow,
    },
)
