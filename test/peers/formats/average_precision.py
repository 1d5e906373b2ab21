"""pycocotools' AP of detections that our engine measured too, to 1e-6. With the path of a second
file, which is `test/golden/average-precision.json`, writes pycocotools' figures there instead."""

import sys

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from coco_precision import figures, main  # noqa: E402


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
    return figures(scene, images, truths, detections, "bbox")


main("average_precision", reference)
