"""pycocotools' AP of detections that our engine measured too, to 1e-6. With the path of a second
file, which is `test/golden/average-precision.json`, writes pycocotools' figures there instead."""

import contextlib
import io
import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect  # noqa: E402
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

TOLERANCE = 1e-6


def corners_to_size(x1, y1, x2, y2):
    return [x1, y1, x2 - x1, y2 - y1]


def reference(scene):
    images, truths, detections = [], [], []
    for index, image in enumerate(scene["images"], start=1):
        images.append({"id": index, "width": 1000, "height": 1000})
        for class_index, *box in image["truths"]:
            x, y, w, h = corners_to_size(*box)
            truths.append(
                {
                    **{"id": len(truths) + 1, "image_id": index, "category_id": class_index + 1},
                    **{"bbox": [x, y, w, h], "area": w * h, "iscrowd": 0},
                }
            )
        for *box, confidence, class_index in image["detections"]:
            bbox = corners_to_size(*box)
            detections.append(
                {
                    **{"image_id": index, "category_id": int(class_index) + 1},
                    **{"bbox": bbox, "score": confidence},
                }
            )
    categories = [{"id": index + 1, "name": str(index)} for index in range(scene["classes"])]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"images": images, "annotations": truths, "categories": categories}
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(detections), "bbox")
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
        case = f"formats/average_precision/{scene['name']}/{name}"
        check(case, lambda: agree(ours, theirs[name]))
