"""pycocotools' AP by masks of detections that our engine measured too, to 1e-6. With the path of a
second file, which is `test/golden/mask-average-precision.json`, writes pycocotools' figures there."""

import contextlib
import io
import json
import sys

import numpy

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect  # noqa: E402
from pycocotools import mask as coding
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

TOLERANCE = 1e-6


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
    categories = [{"id": index + 1, "name": str(index)} for index in range(scene["classes"])]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"images": images, "annotations": truths, "categories": categories}
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(detections), "segm")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {"mAP50": evaluation.stats[1], "mAP50_95": evaluation.stats[0]}


def agree(ours, theirs):
    figures = f"ours {ours:.6f}, pycocotools {theirs:.6f}"
    expect(abs(ours - theirs) <= TOLERANCE, figures)
    return figures


with open(sys.argv[1]) as file:
    scenes = json.load(file)
if len(sys.argv) > 2:
    with open(sys.argv[2], "w") as file:
        json.dump({scene["name"]: reference(scene) for scene in scenes}, file, indent=2)
        file.write("\n")
    sys.exit()
for scene in scenes:
    theirs = reference(scene)
    for name, ours in scene["ours"].items():
        case = f"formats/mask_average_precision/{scene['name']}/{name}"
        check(case, lambda: agree(ours, theirs[name]))
