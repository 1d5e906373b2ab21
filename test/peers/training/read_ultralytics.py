"""Ultralytics checks and loads the YOLO archives as a training of its own would."""

import os
import sys

os.environ |= {
    "YOLO_OFFLINE": "1",
    "YOLO_VERBOSE": "False",
    "YOLO_CONFIG_DIR": sys.argv[1].rsplit("/", 1)[0],
}
from archives import CLASSES, IMAGES, all_images, check, expect, same_boxes, unpacked  # noqa: E402
from ultralytics.data import YOLODataset  # noqa: E402
from ultralytics.data.utils import check_det_dataset  # noqa: E402

TASKS = {"yolo": "detect", "yolo-seg": "segment"}
# Labels have six decimals, and ultralytics holds them as 32 bits: 0.0005 px of 500.
TOLERANCE = 1e-3


def opened(layout):
    data = check_det_dataset(str(unpacked(layout) / "data.yaml"), autodownload=False)
    splits = {
        split: YOLODataset(
            img_path=data[split], data=data, task=TASKS[layout], imgsz=320, augment=False
        )
        for split in ("train", "val")
    }
    return data, splits


def named(path):
    return path.rsplit("/", 1)[-1]


def described(layout):
    data, splits = opened(layout)
    expect(list(data["names"].values()) == CLASSES, f"{data['names']} instead of {CLASSES}")
    expect(data["nc"] == len(CLASSES), f"{data['nc']} classes")
    all_images([named(path) for one in splits.values() for path in one.im_files])


def boxes(layout):
    count = 0
    for dataset in opened(layout)[1].values():
        for label in dataset.labels:
            file = named(label["im_file"])
            height, width = label["shape"]
            image = IMAGES[file]
            expect((width, height) == (image["width"], image["height"]), f"{file}: {width}x{height}")
            found = []
            for [number], (x, y, w, h) in zip(label["cls"].tolist(), label["bboxes"].tolist()):
                left, top = (x - w / 2) * width, (y - h / 2) * height
                box = (left, top, left + w * width, top + h * height)
                found.append((CLASSES[int(number)], *box))
            same_boxes(file, found, TOLERANCE)
            count += len(found)
    return f"{count} boxes"


def masks():
    """Each object of the segmentation layout has a ring, and its sample a mask of its class."""
    for dataset in opened("yolo-seg")[1].values():
        for index, label in enumerate(dataset.labels):
            file = named(label["im_file"])
            objects = len(IMAGES[file]["boxes"])
            expect(len(label["segments"]) == objects, f"{file}: {len(label['segments'])} rings")
            sample = dataset[index]
            drawn = int((sample["masks"].amax(dim=(0, 1, 2)) > 0) if objects else 0)
            expect(drawn == min(objects, 1), f"{file}: no mask is drawn")
            expect(len(sample["cls"]) == objects, f"{file}: {len(sample['cls'])} classes")


def samples():
    """Images are decoded and letterboxed with their boxes, one after the other."""
    for dataset in opened("yolo")[1].values():
        for index, label in enumerate(dataset.labels):
            sample = dataset[index]
            expect(sample["img"].shape[0] == 3, f"{sample['img'].shape}")
            expect(sample["img"].any(), "the image is black")
            wanted = len(IMAGES[named(label["im_file"])]["boxes"])
            expect(len(sample["bboxes"]) == wanted, f"{len(sample['bboxes'])} boxes")


for layout in TASKS:
    check(f"training/ultralytics/{layout}/data.yaml", lambda: described(layout))
    check(f"training/ultralytics/{layout}/boxes", lambda: boxes(layout))
check("training/ultralytics/yolo/samples", samples)
check("training/ultralytics/yolo-seg/masks", masks)
