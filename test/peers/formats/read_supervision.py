"""supervision reads both archives as detection datasets."""

from pathlib import Path

import supervision as sv
from datasets import CLASSES, IMAGES, same_boxes, unpacked
from outcomes import check, expect

SPLITS = ("train", "val")
#: YOLO's texts have six decimals of the image's side; COCO's boxes become single precision.
TOLERANCE = {"yolo": 0.001, "coco": 0.001}


def opened(layout, folder, split):
    images = str(folder / f"images/{split}")
    if layout == "coco":
        return sv.DetectionDataset.from_coco(
            images, str(folder / f"annotations/instances_{split}.json")
        )
    return sv.DetectionDataset.from_yolo(
        images, str(folder / f"labels/{split}"), str(folder / "data.yaml")
    )


def read(layout):
    folder, seen = unpacked(layout), set()
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
    expect(seen == set(IMAGES), f"{sorted(seen)} instead of {sorted(IMAGES)}")


for layout in ("yolo", "coco"):
    check(f"formats/supervision/{layout}", lambda: read(layout))
