"""supervision reads the archives of COCO, YOLO and Pascal VOC, boxes and masks."""

from pathlib import Path

import numpy as np
import supervision as sv
from datasets import CLASSES, IMAGES, same_boxes, unpacked
from outcomes import check, expect

SPLITS = ("train", "val")
#: YOLO's texts have six decimals of the image's side; COCO's boxes become single precision.
TOLERANCE = {"yolo": 0.001, "yolo-seg": 0.001, "coco": 0.001, "voc": 0.001}


def area(ring):
    """Within a polygon of x and y in turn, and the length of its edge."""
    points = np.array(ring).reshape(-1, 2)
    (x, y), after = points.T, np.roll(points, -1, axis=0)
    edge = np.hypot(*(after - points).T).sum()
    return abs(x @ after[:, 1] - y @ after[:, 0]) / 2, edge


def same_masks(file, dataset, detections):
    """Masks of objects that have one, drawn by supervision, have the area of our rings: it draws the
    pixels of the edge, too, of which half lie outside, and rounds each corner to a pixel."""
    drawn = 0
    for box in IMAGES[file]["boxes"]:
        if box["polygon"] is None:
            continue
        wanted, edge = area(box["polygon"])
        near = [
            int(mask.sum())
            for mask, class_id in zip(detections.mask, detections.class_id)
            if dataset.classes[class_id] == box["class"]
            and abs(int(mask.sum()) - wanted) <= edge
        ]
        expect(len(near) == 1, f"{file}: {len(near)} masks of an area of {wanted:.0f} ± {edge:.0f}")
        drawn += 1
    return drawn


def opened(layout, folder, split):
    images = str(folder / f"images/{split}")
    if layout == "coco":
        return sv.DetectionDataset.from_coco(
            images, str(folder / f"annotations/instances_{split}.json")
        )
    return sv.DetectionDataset.from_yolo(
        *(images, str(folder / f"labels/{split}"), str(folder / "data.yaml")),
        force_masks=layout == "yolo-seg",
    )


def read(layout):
    folder, seen, drawn = unpacked(layout), set(), 0
    for split in SPLITS:
        dataset = opened(layout, folder, split)
        expect(dataset.classes == CLASSES, f"{dataset.classes} instead of {CLASSES}")
        for path, image, detections in dataset:
            file = Path(path).name
            seen.add(file)
            wanted = IMAGES[file]
            expect(image.shape == (wanted["height"], wanted["width"], 3), f"{file}: {image.shape}")
            boxes = [
                (dataset.classes[class_id], *map(float, xyxy))
                for xyxy, class_id in zip(detections.xyxy, detections.class_id)
            ]
            same_boxes(file, boxes, TOLERANCE[layout])
            drawn += same_masks(file, dataset, detections) if layout != "yolo" else 0
    expect(seen == set(IMAGES), f"{sorted(seen)} instead of {sorted(IMAGES)}")
    return None if layout == "yolo" else f"masks drawn: {drawn}"


def read_voc():
    """One folder of images; classes in the order in which they are met."""
    folder = unpacked("voc")
    dataset = sv.DetectionDataset.from_pascal_voc(
        str(folder / "JPEGImages"), str(folder / "Annotations")
    )
    rings, seen = 0, set()
    for path, _, detections in dataset:
        file = Path(path).name
        seen.add(file)
        boxes = [
            (dataset.classes[class_id], *map(float, xyxy))
            for xyxy, class_id in zip(detections.xyxy, detections.class_id)
        ]
        same_boxes(file, boxes, TOLERANCE["voc"])
        rings += 0 if detections.mask is None else int(detections.mask.any(axis=(1, 2)).sum())
    expect(seen == set(IMAGES), f"{sorted(seen)} instead of {sorted(IMAGES)}")
    expect(rings == 1, f"{rings} masks instead of 1")
    listed = [(folder / f"ImageSets/Main/{split}.txt").read_text().split("\n")[:-1] for split in SPLITS]
    expect(sorted(sum(listed, [])) == sorted(Path(file).stem for file in IMAGES), f"{listed}")


check("formats/supervision/voc", read_voc)
for layout in ("yolo", "yolo-seg", "coco"):
    check(f"formats/supervision/{layout}", lambda: read(layout))
