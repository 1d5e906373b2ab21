"""OpenVINO and OpenCV read the same files, and find the objects that our own runtime finds."""

import json
import sys
from pathlib import Path

import cv2
import numpy as np
import openvino

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect, say  # noqa: E402

#: An object is the same at this overlap; so many of all have to be.
IOU, SHARE = 0.9, {"fp32": 1.0, "fp16": 0.98, "int8": 0.9}
SURE, UNSURE = 0.25, 0.2
DETECTIONS = 300
#: What OpenCV's own engine gets wrong of int8, it does on processors that have these instructions:
#: opencv_int8.py is the smallest example.
HAS_VNNI = "avx_vnni" in Path("/proc/cpuinfo").read_text()
WITHOUT_VNNI = "the known difference is one of processors with AVX-VNNI"


def by_openvino(file):
    """One image at a time, in single precision where the file leaves the choice."""
    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(file["path"]), "CPU", settings).create_infer_request()

    def look(image):
        request.infer({0: image})
        names = ["output0"] if file["output"] == "end_to_end" else ["boxes", "scores"]
        return {name: request.get_tensor(name).data.copy() for name in names}

    return look


def by_opencv(file, engine=cv2.dnn.ENGINE_AUTO):
    net = cv2.dnn.readNetFromONNX(file["path"], engine)
    names = list(net.getUnconnectedOutLayersNames())

    def look(image):
        net.setInput(image)
        return dict(zip(names, net.forward(names)))

    return look


def rows_of(outputs, file):
    if file["output"] == "end_to_end":
        return outputs["output0"][0]
    boxes, scores = outputs["boxes"][0], outputs["scores"][0]
    anchor, index = np.unravel_index(np.argsort(-scores.ravel(), kind="stable"), scores.shape)
    rows = np.concatenate([boxes[anchor], scores[anchor, index][:, None], index[:, None]], 1)
    return rows[:DETECTIONS]


def overlap(one, other):
    low = np.maximum(one[:, None, :2], other[None, :, :2])
    high = np.minimum(one[:, None, 2:4], other[None, :, 2:4])
    shared = np.clip(high - low, 0, None).prod(2)
    area = [np.clip(rows[:, 2:4] - rows[:, :2], 0, None).prod(1) for rows in (one, other)]
    return shared / np.maximum(area[0][:, None] + area[1][None] - shared, 1e-9)


def objects(file, opened):
    look = opened(file)
    height, width = file["size"]
    images = np.fromfile(file["images"], np.float32).reshape(-1, 1, 3, height, width)
    total, same = 0, 0
    for image, rows in zip(images, np.array(file["rows"], np.float32)):
        wanted = rows[rows[:, 4] > SURE]
        found = rows_of(look(image), file)
        found = found[found[:, 4] > UNSURE]
        total += len(wanted)
        if len(wanted) and len(found):
            alike = overlap(wanted, found) * (wanted[:, 5][:, None] == found[:, 5][None])
            same += int((alike.max(1) >= IOU).sum())
    expect(total > 0, "nothing to compare")
    share = SHARE[file["precision"]]
    expect(same >= share * total, f"{same} of {total} objects are the same")
    return f"{same} of {total} objects"


def by_classic_opencv(file):
    """By the engine of OpenCV 4, which 5 still has; opencv_int8.py says what for."""
    return by_opencv(file, cv2.dnn.ENGINE_CLASSIC)


READERS = {"openvino": by_openvino, "opencv": by_opencv}
for file in json.loads(Path(sys.argv[1]).read_text()):
    if file["batch"] != 1 or file["task"] != "detection":
        continue
    readers = dict(READERS)
    if file["precision"] == "int8":
        readers["opencv_classic"] = by_classic_opencv
    if file["name"] == "int8" and not HAS_VNNI:
        del readers["opencv"]
        say(f"elsewhere/opencv/{file['name']}", "skipped", WITHOUT_VNNI)
    for name, opened in readers.items():
        check(f"elsewhere/{name}/{file['name']}", lambda: objects(file, opened))
