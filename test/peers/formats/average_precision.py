"""pycocotools' AP of detections that our engine measured too, to 1e-6. With the path of a second
file, which is `test/golden/average-precision.json`, writes pycocotools' figures there instead."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from coco_precision import figures, main  # noqa: E402

IGNORED_AREA = 1e11


def corners_to_size(x1, y1, x2, y2):
    return [x1, y1, x2 - x1, y2 - y1]


def reference(scene):
    images, truths, detections = [], [], []
    for index, image in enumerate(scene["images"], start=1):
        images.append({"id": index, "width": 1000, "height": 1000})
        crowds, ignored = (scene.get(key, {}) for key in ("crowds", "ignored"))
        for at, (class_index, *box) in enumerate(image["truths"]):
            x, y, w, h = corners_to_size(*box)
            is_crowd = bool(crowds) and at in crowds[index - 1]
            # pycocotools ignores what is larger than any area it measures.
            area = IGNORED_AREA if ignored and at in ignored[index - 1] else w * h
            truths.append(
                {
                    **{"id": len(truths) + 1, "image_id": index, "category_id": class_index + 1},
                    **{"bbox": [x, y, w, h], "area": area, "iscrowd": int(is_crowd)},
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
    return figures(scene, images, truths, detections, "bbox")


main("average_precision", reference)
