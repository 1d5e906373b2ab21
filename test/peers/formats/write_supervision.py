"""Archives that supervision writes of images that it read in an export, with what is to come of each
where they are imported: our own boxes again, and masks that are drawn here."""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import supervision as sv
from datasets import CLASSES, IMAGES, unpacked
from outcomes import check, expect
from supervision.dataset.utils import approximate_mask_with_polygons

FOLDER = Path(sys.argv[2])
#: Pixels of an image's longest side by which a box may be off. YOLO's texts have five decimals of
#: the side, of which half the last and, of the box's width, a quarter are lost; VOC's are whole.
ROUNDED = {"yolo": 0.00001, "coco": 0, "voc": 0, "labelme": 0}
#: The same in pixels: what single precision loses, and half a pixel where numbers are whole.
APART = {"yolo": 0.001, "coco": 0.001, "voc": 0.501, "labelme": 0.001}


def images():
    """Paths of the exported images by their name."""
    return {path.name: path for path in unpacked("coco").glob("images/*/*")}


def detections(rows, masks=None, **data):
    if not rows:
        return sv.Detections.empty()
    return sv.Detections(
        xyxy=np.array([row["bbox"] for row in rows], np.float32),
        class_id=np.array([CLASSES.index(row["class"]) for row in rows]),
        mask=None if masks is None else np.array(masks),
        data=data,
    )


def written(layout, name, found, expected):
    """Writes what was found on images as a zip of a format, and what is to come of it."""
    paths = images()
    dataset = sv.DetectionDataset(
        classes=CLASSES,
        images=[str(path) for path in paths.values()],
        annotations={
            str(path): found.get(name, sv.Detections.empty()) for name, path in paths.items()
        },
    )
    folder = FOLDER / name
    if layout == "yolo":
        dataset.as_yolo(
            annotations_directory_path=str(folder / "labels"),
            data_yaml_path=str(folder / "data.yaml"),
        )
    elif layout == "coco":
        dataset.as_coco(annotations_path=str(folder / "annotations.json"))
    elif layout == "voc":
        dataset.as_pascal_voc(annotations_directory_path=str(folder / "annotations"))
    else:
        dataset.as_labelme(annotations_directory_path=str(folder / "annotations"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    expect(files, "nothing was written")
    with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(folder))
    (FOLDER / f"{name}.expected.json").write_text(json.dumps(expected))


def boxes(layout):
    """The API's own boxes, by way of supervision."""
    found = {file: detections(image["boxes"]) for file, image in IMAGES.items()}
    expected = [
        {
            **{"class": box["class"], "bbox": box["bbox"]},
            "apart": APART[layout] + ROUNDED[layout] * max(image["width"], image["height"]),
        }
        for image in IMAGES.values()
        for box in image["boxes"]
    ]
    written(layout, f"supervision-{layout}", found, expected)


#: The largest image has all masks.
FILE = max(IMAGES, key=lambda file: IMAGES[file]["width"] * IMAGES[file]["height"])
SIDES = (IMAGES[FILE]["height"], IMAGES[FILE]["width"])


def drawn():
    """An ellipse, one with a hole, and two pieces that are one object."""
    down, across = np.indices(SIDES)

    def ellipse(x, y, rx, ry):
        return ((across - x) / rx) ** 2 + ((down - y) / ry) ** 2 <= 1

    ring = ellipse(200, 80, 50, 40) & ~ellipse(210, 85, 20, 15)
    # No rectangles: a ring that is one is imported as a box.
    return [ellipse(60.5, 70.5, 41, 33), ring, ellipse(40, 165, 20, 15) | ellipse(140, 210, 40, 20)]


def around(mask):
    """The box of a mask, its last pixels included."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]


def area(ring):
    """Within a ring, whichever way it runs; of one with a hole by way of a seam, without the hole."""
    x, y = ring[:, 0].astype(float), ring[:, 1].astype(float)
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def masks(layout):
    """Rings run through the middles of a mask's outermost pixels. YOLO, VOC and LabelMe have one a
    piece, each an object; a hole is cut into it."""
    shapes = drawn()
    rows = [{"class": name, "bbox": around(mask)} for name, mask in zip(CLASSES, shapes)]
    expected = []
    for row, mask in zip(rows, shapes):
        for ring in approximate_mask_with_polygons(mask=mask, bridge_holes=True):
            [left, top], [right, bottom] = ring.min(axis=0), ring.max(axis=0)
            # VOC has a box beside the ring, which ends behind the last pixel.
            last = 1 if layout == "voc" else 0
            bbox = [int(left), int(top), int(right) + last, int(bottom) + last]
            # A ring's five decimals of a side, along all of the ring.
            apart = APART[layout] + ROUNDED[layout] * max(SIDES)
            expected.append(
                {"class": row["class"], "bbox": bbox, "area": area(ring), "apart": apart}
            )
    expect(len(expected) == 4, f"{len(expected)} rings instead of 4")
    written(layout, f"supervision-{layout}-masks", {FILE: detections(rows, shapes)}, expected)


def coco_masks(is_plain):
    """COCO has an object's pieces together. What has a hole or pieces supervision marks as a crowd,
    unless it is told that it is none: then the hole is lost to it."""
    shapes = drawn()
    rows = [{"class": name, "bbox": around(mask)} for name, mask in zip(CLASSES, shapes)]
    expected = []
    for row, mask in zip(rows, shapes):
        rings = approximate_mask_with_polygons(mask=mask, bridge_holes=False)
        if len(rings) > 1 and not is_plain:
            continue
        # A hole's ring lies in another, and adds nothing to it; pieces lie apart.
        areas = sorted(map(area, rings))
        whole = areas[-1] if row["class"] == CLASSES[1] else sum(areas)
        expected.append({**row, "area": whole, "apart": 0.001})
    more = {"iscrowd": np.zeros(len(rows), int)} if is_plain else {}
    found = detections(rows, shapes, **more)
    name = "supervision-coco-masks" if is_plain else "supervision-coco-crowds"
    written("coco", name, {FILE: found}, expected)


for layout in ("yolo", "coco", "voc", "labelme"):
    check(f"formats/supervision/write/{layout}", lambda: boxes(layout))
for layout in ("yolo", "voc", "labelme"):
    check(f"formats/supervision/write/{layout}-masks", lambda: masks(layout))
check("formats/supervision/write/coco-masks", lambda: coco_masks(True))
check("formats/supervision/write/coco-crowds", lambda: coco_masks(False))
