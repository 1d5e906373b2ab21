"""pycocotools reads the COCO archive: images, categories, boxes, areas and masks."""

import contextlib
import io

from datasets import CLASSES, IMAGES, same_boxes, unpacked
from outcomes import check, expect
from PIL import Image
from pycocotools.coco import COCO

SPLITS = ("train", "val")
folder = unpacked("coco")


def opened(split):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(folder / f"annotations/instances_{split}.json"))


datasets = {split: opened(split) for split in SPLITS}


def images():
    files = [image["file_name"] for coco in datasets.values() for image in coco.dataset["images"]]
    expect(sorted(files) == sorted(IMAGES), f"{sorted(files)} instead of {sorted(IMAGES)}")
    for split, coco in datasets.items():
        expect(coco.imgs, f"nothing in {split}")
        for image in coco.dataset["images"]:
            with Image.open(folder / f"images/{split}/{image['file_name']}") as opened_image:
                expect(opened_image.size == (image["width"], image["height"]), image["file_name"])
            wanted = IMAGES[image["file_name"]]
            expect((image["width"], image["height"]) == (wanted["width"], wanted["height"]), "size")


def categories():
    for coco in datasets.values():
        names = [one["name"] for one in coco.loadCats(sorted(coco.getCatIds()))]
        expect(names == CLASSES, f"{names} instead of {CLASSES}")


def boxes():
    for coco in datasets.values():
        for image in coco.dataset["images"]:
            found = []
            for one in coco.loadAnns(coco.getAnnIds(imgIds=[image["id"]])):
                x, y, w, h = one["bbox"]
                found.append((coco.cats[one["category_id"]]["name"], x, y, x + w, y + h))
            same_boxes(image["file_name"], found, 1e-9)


def masks():
    """A ring's area is that of its drawn mask, but for the pixels that its edge crosses."""
    rings = 0
    for coco in datasets.values():
        for one in coco.dataset["annotations"]:
            if not one["segmentation"]:
                continue
            rings += 1
            drawn = float(coco.annToMask(one).sum())
            edge = 2 * (one["bbox"][2] + one["bbox"][3])
            expect(abs(drawn - one["area"]) <= edge, f"{drawn} pixels, area {one['area']}")
    expect(rings == 1, f"{rings} rings instead of 1")


for work in (images, categories, boxes, masks):
    check(f"formats/pycocotools/{work.__name__}", work)
