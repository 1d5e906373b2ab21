"""pycocotools' AP by masks of detections that our engine measured too, to 1e-6. With the path of a
second file, which is `test/golden/mask-average-precision.json`, writes pycocotools' figures there."""

import sys

import numpy

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from coco_precision import figures, main  # noqa: E402
from pycocotools import mask as coding


def encoded(text):
    side = round(len(text) ** 0.5)
    cells = numpy.frombuffer(text.encode(), dtype=numpy.uint8) - ord("0")
    return coding.encode(numpy.asfortranarray(cells.reshape(side, side)))


def reference(scene):
    images, truths, detections = [], [], []
    for index, image in enumerate(scene["images"], start=1):
        side = round(len(image["truths"][0]["mask"]) ** 0.5)
        images.append({"id": index, "width": side, "height": side})
        for truth in image["truths"]:
            shape = encoded(truth["mask"])
            truths.append(
                {
                    **{"id": len(truths) + 1, "image_id": index, "iscrowd": 0},
                    **{"category_id": truth["classIndex"] + 1, "segmentation": shape},
                    **{"area": float(coding.area(shape)), "bbox": list(coding.toBbox(shape))},
                }
            )
        for detection in image["detections"]:
            detections.append(
                {
                    **{"image_id": index, "category_id": detection["classIndex"] + 1},
                    **{"segmentation": encoded(detection["mask"])},
                    **{"score": detection["confidence"]},
                }
            )
    return figures(scene, images, truths, detections, "segm")


main("mask_average_precision", reference)
