"""Holds what trtexec wrote (--exportOutput) against the objects of the fp32 model.

Every object has to have one of its own, of its class, that covers the same area (IoU of 0.9), and
few sure ones may be left over. Nothing but Python's own library is needed.
"""

import json
import sys

DETECTIONS = 300
IOU = 0.9
#: Of the objects; int8 may lose one in ten, and find as many more.
SHARE = 0.9
#: A score may fall to so much of what it was.
SCORE = 0.8
#: From it on a row of the fp32 model is an object.
OBJECT_SCORE = 0.25


def tensors(path):
    """Name → (sides, numbers) of the outputs."""
    with open(path, encoding="utf-8") as file:
        written = json.load(file)
    found = {}
    for one in written:
        sides = [int(side) for side in one["dimensions"].split("x")]
        found[one["name"]] = (sides, [float(value) for value in one["values"]])
    return found


def rows_of_heads(boxes, scores, classes):
    """The two top-k steps: the best anchors by their best class, then the best of their scores."""
    anchors = range(len(scores) // classes)
    best = sorted(anchors, key=lambda at: -max(scores[at * classes : (at + 1) * classes]))
    pairs = [(at, index) for at in best[:DETECTIONS] for index in range(classes)]
    pairs.sort(key=lambda pair: -scores[pair[0] * classes + pair[1]])
    return [
        [*boxes[4 * at : 4 * at + 4], scores[at * classes + index], index]
        for at, index in pairs[: min(DETECTIONS, len(anchors))]
    ]


def rows_of(outputs):
    """Rows of the first image."""
    if "output0" in outputs:
        (_, count, width), values = outputs["output0"]
        return [values[row * width : row * width + 6] for row in range(count)]
    (_, anchors, classes), scores = outputs["scores"]
    boxes = outputs["boxes"][1]
    return rows_of_heads(boxes[: anchors * 4], scores[: anchors * classes], classes)


def iou(one, other):
    """The shared part of two boxes of both together."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, across) * max(0.0, down)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared or 1.0)


def main(output, expected):
    """Prints how many objects were found again, and how many more; fails by either."""
    with open(expected, encoding="utf-8") as file:
        wanted = json.load(file)["rows"]
    rows = rows_of(tensors(output))
    left = list(rows)
    for one in wanted:
        same = [row for row in left if int(row[5]) == int(one[5]) and row[4] >= SCORE * one[4]]
        best = max(same, key=lambda row: iou(row, one), default=None)
        if best is not None and iou(best, one) >= IOU:
            left.remove(best)
    found = len(rows) - len(left)
    # Surer than what may have risen to a cut: that of objects, or that of a full list.
    cut = max(OBJECT_SCORE, wanted[-1][4] if len(wanted) == len(rows) else 0)
    extra = sum(row[4] * SCORE >= cut for row in left)
    print(f"{found} of {len(wanted)} objects found again, and {extra} more")
    least = SHARE * len(wanted)
    if found >= least and extra <= len(wanted) - least:
        return 0
    if all(row[4] < OBJECT_SCORE for row in wanted):
        print("inconclusive: the model is sure of nothing on this image; look at one of yours")
        return 2
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
