"""pycocotools' average precision of scenes, held against what our engine measured of them."""

import contextlib
import io
import json
import sys

from outcomes import check, expect
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

TOLERANCE = 1e-6
# Not among the figures of the golden file, for its size.
CURVES = "precision_by_recall"


def figures(scene, images, truths, detections, kind):
    """AP50 and AP50-95 of COCO records, by boxes (`bbox`) or masks (`segm`)."""
    categories = [{"id": index + 1, "name": str(index)} for index in range(scene["classes"])]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = {"images": images, "annotations": truths, "categories": categories}
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(detections), kind)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    # Axes: IoU, recall, class, area, detections an image. The first IoU is 0.5.
    by_class = evaluation.eval["precision"][0, :, :, 0, -1].T
    return {
        "mAP50": evaluation.stats[1],
        "mAP50_95": evaluation.stats[0],
        CURVES: by_class.tolist(),
    }


def agree(ours, theirs, tolerance):
    told = f"ours {ours:.6f}, pycocotools {theirs:.6f}"
    expect(abs(ours - theirs) <= tolerance, told)
    return told


def agree_curves(ours, theirs, tolerance):
    """Precision at each recall, class by class; pycocotools has -1 for a class without an object."""
    expect([len(curve) for curve in ours] == [len(curve) for curve in theirs], "other lengths")
    apart = max(abs(a - b) for one, other in zip(ours, theirs) for a, b in zip(one, other))
    told = f"at most {apart:.7f} apart"
    expect(apart <= tolerance, told)
    return told


def main(name, reference):
    """Checks each scene of the first file; with a second one, writes the figures there instead."""
    with open(sys.argv[1]) as file:
        scenes = json.load(file)
    if len(sys.argv) > 2:
        with open(sys.argv[2], "w") as file:
            named = {scene["name"]: reference(scene) for scene in scenes}
            for figures_of_scene in named.values():
                del figures_of_scene[CURVES]
            json.dump(named, file, indent=2)
            file.write("\n")
        return
    for scene in scenes:
        theirs = reference(scene)
        for figure, ours in scene["ours"].items():
            case = f"formats/{name}/{scene['name']}/{figure}"
            compare = agree_curves if figure == CURVES else agree
            check(case, lambda: compare(ours, theirs[figure], scene.get("tolerance", TOLERANCE)))
