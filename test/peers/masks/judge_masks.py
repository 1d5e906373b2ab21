"""pycocotools' average precision of masks that were served, and of masks that the exported file
says, on frames of a video that was not learned from. Masks of the file are drawn here, in NumPy."""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from pycocotools import mask as coding

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from coco_precision import figures  # noqa: E402
from outcomes import check, expect  # noqa: E402

sys.path.insert(0, sys.argv[2])
from detect import letterboxed, upright  # noqa: E402

#: A wrong or missing half of the masks is far below; the model itself is no matter of this test.
AP50_MIN = 0.7
#: Scaling by Pillow is not the node's, so scores and borders differ a little.
DIFFERENCE_MAX = 0.03
COEFFICIENTS = slice(6, 38)


def precision(frames, found, kind):
    """AP50 and AP50-95 of detections, by masks (`segm`) or boxes (`bbox`)."""
    images, truths, detections = [], [], []
    for index, frame in enumerate(frames, start=1):
        size = {"width": frame["width"], "height": frame["height"]}
        images.append({"id": index, **size})
        for truth in frame["truths"]:
            x1, y1, x2, y2 = truth["bbox"]
            runs = coding.merge(
                coding.frPyObjects([truth["polygon"]], frame["height"], frame["width"])
            )
            box = [x1, y1, x2 - x1, y2 - y1]
            record = {"id": len(truths) + 1, "image_id": index, "category_id": 1, "iscrowd": 0}
            area = float(coding.area(runs))
            truths.append({**record, "segmentation": runs, "area": area, "bbox": box})
        for score, box, runs in found[index - 1]:
            x1, y1, x2, y2 = box
            record = {"image_id": index, "category_id": 1, "score": score}
            if kind == "bbox":
                detections.append({**record, "bbox": [x1, y1, x2 - x1, y2 - y1]})
            elif runs is not None:
                detections.append({**record, "segmentation": runs})
    said = figures({"classes": 1}, images, truths, detections, kind)
    return said["mAP50"], said["mAP50_95"]


def served(frames):
    """Score, box and runs of what the service said."""

    def runs(rle):
        if rle is None:
            return None
        height, width = rle["size"]
        return coding.frPyObjects({"size": [height, width], "counts": rle["counts"]}, height, width)

    return [
        [(one["score"], one["bbox"], runs(one["rle"])) for one in frame["served"]]
        for frame in frames
    ]


def interpolated(cells, places):
    """Rows of a map at places between its cells' middles; outside it is as its border."""
    first = np.floor(places).astype(int)
    share = (places - first)[:, None]
    low, high = np.clip(first, 0, len(cells) - 1), np.clip(first + 1, 0, len(cells) - 1)
    return cells[low] * (1 - share) + cells[high] * share


def drawn(session, frame, size):
    """Score, box and runs of what the file says: the sigmoid of an object's coefficients with the
    prototypes is at least one half, pixel by pixel inside its box."""
    image = upright(frame["path"])
    canvas, (left, top, (across, down)) = letterboxed(image, size)
    pixels = canvas.transpose(2, 0, 1)[None].astype(np.float32)
    rows, prototypes = session.run(["output0", "output1"], {"images": pixels})
    stride = size[0] / prototypes.shape[2]
    xs = ((np.arange(image.width) + 0.5) * across + left) / stride - 0.5
    ys = ((np.arange(image.height) + 0.5) * down + top) / stride - 0.5
    found = []
    for row in rows[0]:
        if row[4] < 0.001:
            continue
        x1, x2 = ((row[[0, 2]] - left) / across).clip(0, image.width)
        y1, y2 = ((row[[1, 3]] - top) / down).clip(0, image.height)
        logits = np.tensordot(row[COEFFICIENTS], prototypes[0], 1)
        whole = interpolated(interpolated(logits, ys).T, xs).T
        rows_in = (np.arange(image.height) + 0.5 >= y1) & (np.arange(image.height) + 0.5 < y2)
        columns_in = (np.arange(image.width) + 0.5 >= x1) & (np.arange(image.width) + 0.5 < x2)
        mask = (whole > 0) & rows_in[:, None] & columns_in[None]
        runs = coding.encode(np.asfortranarray(mask.astype(np.uint8))) if mask.any() else None
        found.append((float(row[4]), [x1, y1, x2, y2], runs))
    return found


def good(name, frames, found):
    box50, box = precision(frames, found, "bbox")
    mask50, mask = precision(frames, found, "segm")
    told = f"masks AP50 {mask50:.3f}, AP {mask:.3f}; boxes AP50 {box50:.3f}, AP {box:.3f}"
    expect(mask50 >= AP50_MIN, f"{told}; at least {AP50_MIN}")
    measured[name] = (mask50, mask)
    return f"{told}; {len(frames)} frames"


def same():
    far = np.abs(np.subtract(measured["served"], measured["exported"])).max()
    expect(far <= DIFFERENCE_MAX, f"differ by {far:.3f}")
    return f"within {far:.4f}"


measured = {}
story = json.loads(Path(sys.argv[1]).read_text())
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(story["model"], options, ["CPUExecutionProvider"])
by_file = [drawn(session, frame, story["size"]) for frame in story["frames"]]
check("masks/pycocotools/served", lambda: good("served", story["frames"], served(story["frames"])))
check("masks/pycocotools/exported", lambda: good("exported", story["frames"], by_file))
check("masks/pycocotools/same", same)
