"""torchvision's CocoDetection over the COCO archive, with the boxes and masks of its annotations."""

import contextlib
import io

from archives import IMAGES, all_images, check, expect, same_boxes, unpacked
from torchvision.datasets import CocoDetection
from torchvision.transforms.functional import pil_to_tensor

folder = unpacked("coco")


def opened(split):
    with contextlib.redirect_stdout(io.StringIO()):
        return CocoDetection(
            str(folder / f"images/{split}"), str(folder / f"annotations/instances_{split}.json")
        )


def samples():
    files = []
    for dataset in map(opened, ("train", "val")):
        for id, (image, targets) in zip(dataset.ids, dataset):
            file = dataset.coco.imgs[id]["file_name"]
            wanted = IMAGES[file]
            expect(
                tuple(pil_to_tensor(image).shape) == (3, wanted["height"], wanted["width"]), file
            )
            found = []
            for one in targets:
                x, y, w, h = one["bbox"]
                name = dataset.coco.cats[one["category_id"]]["name"]
                found.append((name, x, y, x + w, y + h))
            same_boxes(file, found, 1e-9)
            files.append(file)
    all_images(files)
    return f"{len(files)} images"


def masks():
    count = 0
    for dataset in map(opened, ("train", "val")):
        for image, targets in dataset:
            for one in targets:
                mask = dataset.coco.annToMask(one)
                expect(mask.shape == (image.height, image.width), f"{mask.shape}")
                expect(mask.any(), f"annotation {one['id']} has no mask")
                count += 1
    return f"{count} masks"


check("training/torchvision/coco/samples", samples)
check("training/torchvision/coco/masks", masks)
