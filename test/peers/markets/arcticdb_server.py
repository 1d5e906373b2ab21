"""ArcticDB over LMDB behind FastAPI: the driver's rows and revisions, answered as of a version.
Reads give Arrow to polars, whose own writers make the JSON, the fastest way found, and the Parquet,
packed as ours is."""

import io
import json
import sys
from pathlib import Path

import arcticdb
import numpy as np
import pandas as pd
import polars as pl
import uvicorn
from fastapi import FastAPI, Response

spec = json.loads(Path(sys.argv[1]).read_text())
ROWS, STEP, FROM, AS_OFS = spec["rows"], spec["stepMs"], spec["fromMs"], spec["asOfs"]
COMMIT_ROWS, REVISIONS, VERSION = spec["commitRows"], spec["revisions"], spec["version"]

store = arcticdb.Arctic(f"lmdb://{spec['folder']}?map_size=4GB")
library = store.get_library("power.lmp", create_if_missing=True)


def instant(milliseconds):
    return pd.to_datetime(milliseconds, unit="ms")


def prices(index, revision):
    """What the driver's `price` says, to the bit."""
    return ((index * 7919 + revision * 101) % 900001) / 100


def frame(index, as_of):
    columns = {
        "instrument_id": "power.lmp.hub",
        "value": prices(index, 0),
        "as_of": instant(np.broadcast_to(as_of, len(index))),
        "vintage_reconstructed": False,
    }
    valid = pd.DatetimeIndex(instant(FROM + index * STEP), name="Datetime")
    return pd.DataFrame(columns, index=valid)


def fill():
    as_ofs = iter(AS_OFS)
    for first in range(0, ROWS, COMMIT_ROWS):
        index = np.arange(first, min(ROWS, first + COMMIT_ROWS), dtype=np.int64)
        (library.append if first else library.write)("hub", frame(index, next(as_ofs)))
    count = ROWS // REVISIONS
    for revision in range(1, REVISIONS + 1):
        index = np.arange(count * (revision - 1), count * revision, dtype=np.int64)
        bounds = (instant(FROM + int(index[0]) * STEP), instant(FROM + int(index[-1]) * STEP))
        # Read, alter, update the range: changed rows carry the new `as_of`, the others keep theirs.
        current = library.read("hub", date_range=bounds, output_format="PANDAS").data
        changed = index % 5 == 0
        values, known = current["value"].to_numpy().copy(), current["as_of"].to_numpy().copy()
        values[changed] = prices(index[changed], revision)
        known[changed] = np.datetime64(next(as_ofs), "ms")
        current["value"], current["as_of"] = values, known
        library.update("hub", current)


app = FastAPI()


@app.get("/series")
def series(start: int | None = None, end: int | None = None, format: str = "json"):
    bounds = None if start is None else (instant(start), instant(end))
    table = library.read("hub", as_of=VERSION, date_range=bounds, output_format="POLARS").data
    buffer = io.BytesIO()
    if format == "parquet":
        table.write_parquet(buffer, compression="snappy")
        return Response(buffer.getvalue(), media_type="application/vnd.apache.parquet")
    texts = pl.col("Datetime", "as_of").dt.strftime("%Y-%m-%dT%H:%M:%S.%3fZ")
    table.with_columns(texts).write_json(buffer)
    return Response(buffer.getvalue(), media_type="application/json")


fill()
uvicorn.run(app, host="127.0.0.1", port=spec["port"], log_level="warning")
