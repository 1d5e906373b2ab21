"""globox reads the boxes of CVAT's XML; its polygons are read as CVAT's documentation has them."""

from pathlib import Path
from xml.etree import ElementTree

from datasets import CLASSES, IMAGES, same_boxes, unpacked
from globox import AnnotationSet
from outcomes import check, expect

folder = unpacked("cvat")
root = ElementTree.parse(folder / "annotations.xml").getroot()


def ring_box(polygon):
    points = [tuple(map(float, one.split(","))) for one in polygon.get("points").split(";")]
    xs, ys = zip(*points)
    return (polygon.get("label"), min(xs), min(ys), max(xs), max(ys))


def cvat():
    rings = {
        image.get("name"): [ring_box(polygon) for polygon in image.iter("polygon")]
        for image in root.iter("image")
    }
    annotations = AnnotationSet.from_cvat(folder / "annotations.xml")
    seen = set()
    for annotation in annotations:
        file = annotation.image_id
        seen.add(file)
        wanted = IMAGES[file]
        expect(annotation.image_size == (wanted["width"], wanted["height"]), f"size of {file}")
        boxes = [(box.label, box.xmin, box.ymin, box.xmax, box.ymax) for box in annotation.boxes]
        same_boxes(file, [*boxes, *rings[file]], 0.001)
    expect(seen == set(IMAGES), f"{sorted(seen)} instead of {sorted(IMAGES)}")
    expect(sum(map(len, rings.values())) == 1, f"{rings}")


def layout():
    labels = [label.findtext("name") for label in root.find("meta").iter("label")]
    expect(labels == CLASSES, f"{labels} instead of {CLASSES}")
    for image in root.iter("image"):
        path = Path("images") / image.get("subset") / image.get("name")
        expect((folder / path).is_file(), f"{path} is not in the archive")
    expect(root.findtext("version") == "1.1", "not version 1.1")
    # Datumaro looks for a split's images under a task of its own.
    tasks = [task.findtext("subset") for task in root.find("meta").iter("task")]
    expect(sorted(tasks) == ["train", "val"], f"tasks of {tasks}")


for work in (cvat, layout):
    check(f"formats/globox/{work.__name__}", work)
