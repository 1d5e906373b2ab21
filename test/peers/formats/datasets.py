"""The archives of an export, unpacked, beside what the API says is in them."""

import json
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import expect  # noqa: E402

DATASETS = json.loads(Path(sys.argv[1]).read_text())
CLASSES = DATASETS["classes"]
IMAGES = {image["file"]: image for image in DATASETS["images"]}


def unpacked(layout):
    """The folder of a format's archive, or of the archive at a path."""
    folder = Path(tempfile.mkdtemp(dir=Path(sys.argv[1]).parent))
    with zipfile.ZipFile(DATASETS["archives"].get(layout, layout)) as archive:
        expect(archive.testzip() is None, "a checksum of the archive is wrong")
        archive.extractall(folder)
    return folder


def same_boxes(file, boxes, tolerance):
    """`boxes` are (class name, x1, y1, x2, y2); their order is free."""
    wanted = sorted((box["class"], *box["bbox"]) for box in IMAGES[file]["boxes"])
    expect(len(boxes) == len(wanted), f"{file}: {len(boxes)} boxes instead of {len(wanted)}")
    for left, right in zip(sorted(boxes), wanted):
        apart = max(abs(a - b) for a, b in zip(left[1:], right[1:]))
        expect(left[0] == right[0] and apart <= tolerance, f"{file}: {left} instead of {right}")
