"""Datumaro reads CVAT's videos and MOT's sequences, motmetrics the latter: boxes, tracks, classes."""

import json
import sys
import tempfile
import zipfile
from pathlib import Path

import motmetrics
from datumaro import AnnotationType, Dataset

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect  # noqa: E402

TRACKS = json.loads(Path(sys.argv[1]).read_text())
NAMES = TRACKS["classes"]
FRAMES = TRACKS["frames"]


def unpacked(layout):
    folder = Path(tempfile.mkdtemp(dir=Path(sys.argv[1]).parent))
    with zipfile.ZipFile(TRACKS["archives"][layout]) as archive:
        archive.extractall(folder)
    return folder


def same(found, wanted):
    found, wanted = sorted(found), sorted(wanted)
    expect(len(found) == len(wanted), f"{len(found)} boxes instead of {len(wanted)}: {found}")
    for left, right in zip(found, wanted):
        apart = max(abs(a - b) for a, b in zip(left[3:], right[3:]))
        expect(left[:3] == right[:3] and apart <= 0.002, f"{left} instead of {right}")


def wanted(number):
    """Frame by its number, class, track (None where it has none of the job's), x, y, w, h."""
    return [(number(one["frame"]), one["class"], one["track"], *one["box"]) for one in TRACKS["boxes"]]


def tracked(rows):
    """Tracks of one box are those of annotations that have none."""
    ids = [row[2] for row in rows]
    return [(*row[:2], row[2] if ids.count(row[2]) > 1 else 0, *row[3:]) for row in rows]


def rows_of(dataset):
    for item in dataset:
        for one in item.annotations:
            if one.type == AnnotationType.bbox and not one.attributes.get("outside"):
                frame = item.attributes.get("frame", item.id)
                name = dataset.categories()[AnnotationType.label][one.label].name
                yield (int(frame), name, one.attributes["track_id"], *one.get_bbox())


def cvat():
    dataset = Dataset.import_from(str(unpacked("cvat-video")), "cvat")
    same(tracked(list(rows_of(dataset))), wanted(lambda frame: frame))


def mot():
    dataset = Dataset.import_from(str(unpacked("mot")), "mot_seq")
    names = [label.name for label in dataset.categories()[AnnotationType.label]]
    expect(names == NAMES, f"{names} instead of {NAMES}")
    same(tracked(list(rows_of(dataset))), wanted(lambda frame: FRAMES.index(frame) + 1))
    sizes = {item.media.size for item in dataset}
    expect(sizes == {tuple(TRACKS["size"])}, f"images of {sizes}")
    expect(len(dataset) == len(FRAMES), f"{len(dataset)} images instead of {len(FRAMES)}")
    expect(all(Path(item.media.path).is_file() for item in dataset), "an image is missing")


def metrics():
    [path] = unpacked("mot").glob("*/gt/gt.txt")
    frame = motmetrics.io.loadtxt(str(path), fmt="mot16", min_confidence=1)
    rows = [
        # It takes the first pixel for 1, as MOTChallenge does; CVAT's files have 0.
        (number, NAMES[int(row.ClassId) - 1], track, row.X + 1, row.Y + 1, row.Width, row.Height)
        for (number, track), row in frame.iterrows()
    ]
    same(tracked(rows), wanted(lambda index: FRAMES.index(index) + 1))


check("annotators/datumaro/cvat-video", cvat)
check("annotators/datumaro/mot", mot)
check("annotators/motmetrics/mot", metrics)
