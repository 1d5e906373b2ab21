"""The lines of Python in the read API's README, run as they stand: on a series with rows, and as of
an instant before it had any. The series' name and the service's address alone are exchanged."""

import os
import re
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import duckdb

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect  # noqa: E402

ADDRESS = urlsplit(sys.argv[1])
ROWS = int(sys.argv[2])
SYMBOL = parse_qs(ADDRESS.query)["symbol"][0]
NOW = re.compile(r"^now = .*$", re.MULTILINE)
DUCKDB = re.compile(r"^duckdb\..*\n", re.MULTILINE)
os.environ.pop("KEY", None)


def reads_addresses():
    """Whether DuckDB's extension for addresses can be fetched here."""
    try:
        duckdb.connect().execute("INSTALL httpfs; LOAD httpfs")
    except duckdb.Error:
        return False
    return True


readme = Path(sys.argv[3]).read_text()
blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
left_out = "" if reads_addresses() else ", without DuckDB: its httpfs cannot be fetched"


def ran(earlier, rows):
    """Runs all blocks one after the other and returns how many rows each library saw."""
    names = {}
    for block in blocks:
        source = block.replace("http://localhost:8000", f"{ADDRESS.scheme}://{ADDRESS.netloc}")
        source = re.sub(r'(["=])erco\b', rf"\g<1>{SYMBOL}", source)
        if left_out:
            source = DUCKDB.sub("", source)
        if earlier:
            source, count = NOW.subn(f'now = "{earlier}"', source)
            expect(count == 1 or block is not blocks[0], "no line says what is now")
        # Imported as its reader would have.
        exec(compile("import duckdb\n" + source, "README.md", "exec"), names)
    seen = [len(names[name]) for name in ("rows", "frame", "same")]
    expect(seen == [rows] * 3, f"{seen} rows instead of {rows}")
    return f"{len(blocks)} blocks, {seen} rows{left_out}"


check("formats/readme/rows", lambda: ran(None, ROWS))
check("formats/readme/empty", lambda: ran("2001-01-01T00:00:00Z", 0))
