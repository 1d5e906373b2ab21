"""pycocotools' average precision of detections: `coco_figures.py truth.json found.json`."""

import contextlib
import io
import json
import sys

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

with contextlib.redirect_stdout(io.StringIO()):
    truth = COCO(sys.argv[1])
    with open(sys.argv[2]) as file:
        found = json.load(file)
    evaluation = COCOeval(truth, truth.loadRes(found) if found else COCO(), "bbox")
    if found:
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
ap, ap50 = evaluation.stats[:2] if found else (0, 0)
print(json.dumps({"ap50": ap50, "ap": ap}))
