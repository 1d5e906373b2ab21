"""Ultralytics and sahi read the files by their metadata alone, and find our predictor's objects."""

import json
import logging
import os
import sys
from pathlib import Path

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, sys.argv[2])
folder = str(Path(sys.argv[1]).parent / "ultralytics")
os.environ |= {"YOLO_AUTOINSTALL": "False", "YOLO_OFFLINE": "True", "YOLO_CONFIG_DIR": folder}
logging.disable(logging.CRITICAL)

import numpy as np  # noqa: E402
from outcomes import check, expect  # noqa: E402
from sahi import AutoDetectionModel  # noqa: E402
from sahi.predict import get_prediction  # noqa: E402
from ultralytics import YOLO  # noqa: E402

#: An object is the same at this overlap. They scale images by another kernel than our nodes, so a
#: few boxes of a hundred move by more.
IOU, SHARE = 0.9, {"fp32": 0.97, "fp16": 0.97, "int8": 0.85}
UNSURE = 0.2


def overlaps(box, rows):
    low, high = np.maximum(rows[:, :2], box[:2]), np.minimum(rows[:, 2:4], box[2:4])
    shared = np.clip(high - low, 0, None).prod(1)
    area = (rows[:, 2:4] - rows[:, :2]).prod(1) + (box[2:4] - box[:2]).prod()
    return shared / (area - shared)


def same(file, images, look):
    """`look` gives rows of an image: corners in its pixels, then the class."""
    again, sure = 0, 0
    for image in images:
        rows = np.array(look(image["path"]), np.float32).reshape(-1, 5)
        for row in np.array(image["objects"], np.float32):
            mine = rows[rows[:, 4] == row[5]]
            sure += 1
            again += bool(len(mine)) and bool((overlaps(row[:4], mine) >= IOU).any())
    expect(sure > 0, "nothing to compare")
    expect(again >= SHARE[file["precision"]] * sure, f"{again} of {sure} objects")
    return f"{again} of {sure} objects"


def by_ultralytics(file, said):
    model = YOLO(file["path"])

    def look(path):
        boxes = model.predict(path, imgsz=said["side"], conf=UNSURE, verbose=False)[0].boxes
        return np.concatenate([boxes.xyxy.numpy(), boxes.cls.numpy()[:, None]], 1)

    detail = same(file, said["images"], look)
    expect(list(model.names.values()) == said["classes"], f"{model.names}")
    return detail


def by_sahi(file, said):
    model = AutoDetectionModel.from_pretrained(
        model_type="ultralytics",
        model_path=file["path"],
        confidence_threshold=UNSURE,
        device="cpu",
        image_size=said["side"],
    )

    def look(path):
        found = get_prediction(path, model).object_prediction_list
        return [[*one.bbox.to_xyxy(), one.category.id] for one in found]

    return same(file, said["images"], look)


said = json.loads(Path(sys.argv[1]).read_text())
for file in said["files"]:
    check(f"readers/ultralytics/{file['name']}", lambda: by_ultralytics(file, said))
    check(f"readers/sahi/{file['name']}", lambda: by_sahi(file, said))
