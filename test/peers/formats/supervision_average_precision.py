"""supervision's AP of the scenes of which pycocotools' is beside ours, by boxes and by masks."""

import json
import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
import numpy as np  # noqa: E402
import supervision as sv  # noqa: E402
from outcomes import check, expect  # noqa: E402
from supervision.metrics import MeanAveragePrecision, MetricTarget  # noqa: E402

#: Its precisions are of single precision before they are averaged.
TOLERANCE = 1e-6
#: An object of it is larger than any that is measured: so pycocotools is told to ignore it.
IGNORED_AREA = 1e11


def detections(boxes, classes, confidences=None, masks=None, **data):
    if not len(boxes):
        return sv.Detections.empty()
    return sv.Detections(
        xyxy=np.array(boxes, float),
        class_id=np.array(classes, int),
        confidence=None if confidences is None else np.array(confidences, float),
        mask=None if masks is None else np.array(masks, bool),
        data={name: np.array(values) for name, values in data.items()},
    )


def mask_of(text):
    side = round(len(text) ** 0.5)
    return (np.frombuffer(text.encode(), dtype=np.uint8) == ord("1")).reshape(side, side)


def by_boxes(scene, index, image):
    crowds, ignored = (scene.get(key) or {} for key in ("crowds", "ignored"))
    truths = image["truths"]
    areas = [(x2 - x1) * (y2 - y1) for _, x1, y1, x2, y2 in truths]
    if ignored:
        areas = [IGNORED_AREA if at in ignored[index] else area for at, area in enumerate(areas)]
    is_crowd = [int(bool(crowds) and at in crowds[index]) for at in range(len(truths))]
    found = image["detections"]
    return (
        detections([row[:4] for row in found], [row[5] for row in found], [row[4] for row in found]),
        detections(
            [row[1:] for row in truths], [row[0] for row in truths], iscrowd=is_crowd, area=areas
        ),
    )


def by_masks(_, __, image):
    rows = []
    for one in (image["detections"], image["truths"]):
        masks = [mask_of(row["mask"]) for row in one]
        classes = [row["classIndex"] for row in one]
        scores = [row["confidence"] for row in one] if one is image["detections"] else None
        rows.append(detections([row["box"] for row in one], classes, scores, masks))
    return rows


def compare(path, name, rows_of, target):
    with open(path) as file:
        scenes = json.load(file)
    for scene in scenes:
        metric = MeanAveragePrecision(metric_target=target)
        for index, image in enumerate(scene["images"]):
            metric.update(*rows_of(scene, index, image))

        def agree(figure):
            result = metric.compute()
            theirs = {"mAP50": result.map50, "mAP50_95": result.map50_95}[figure]
            ours = scene["ours"][figure]
            told = f"ours {ours:.6f}, supervision {theirs:.6f}"
            expect(abs(ours - theirs) <= scene.get("tolerance", TOLERANCE), told)
            return told

        for figure in ("mAP50", "mAP50_95"):
            check(f"formats/supervision/{name}/{scene['name']}/{figure}", lambda: agree(figure))


compare(sys.argv[1], "average_precision", by_boxes, MetricTarget.BOXES)
compare(sys.argv[2], "mask_average_precision", by_masks, MetricTarget.MASKS)
