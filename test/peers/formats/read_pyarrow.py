"""pyarrow, with what it infers. Its JSON reader takes a value a line and nothing else."""

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.json
import pyarrow.parquet
from answers import named, read_all


def kind(dtype):
    if pa.types.is_dictionary(dtype):
        return kind(dtype.value_type)
    if pa.types.is_timestamp(dtype):
        return "instant" if dtype.tz in ("UTC", "+00:00") else f"instant of {dtype.tz}"
    if pa.types.is_boolean(dtype):
        return "flag"
    if pa.types.is_integer(dtype):
        return "count"
    if pa.types.is_floating(dtype):
        return "number"
    if pa.types.is_null(dtype):
        return "nothing"
    is_text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
    return "text" if is_text else str(dtype)


def seen(table):
    table.validate(full=True)
    return {field.name: kind(field.type) for field in table.schema}, table.to_pylist()


def stream(path, _columns):
    with open(path, "rb") as file:
        return seen(pyarrow.ipc.open_stream(file).read_all())


def texts(columns):
    return [(name, pa.string()) for name in named(columns, "text")]


def ndjson(path, columns):
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(texts(columns)))
    table = pyarrow.json.read_json(path, parse_options=options)
    # Those it was told of come first.
    return seen(table.select([name for name in columns if name in table.column_names]))


def csv(path, columns):
    types = dict(texts(columns))
    options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, column_types=types)
    return seen(pyarrow.csv.read_csv(path, convert_options=options))


read_all(
    "pyarrow",
    {
        "ndjson": ndjson,
        "csv": csv,
        "parquet": lambda path, _columns: seen(pyarrow.parquet.read_table(path)),
        "arrow": stream,
    },
)
