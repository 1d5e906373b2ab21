"""The runner in Python, as users have it, on ONNX and TensorFlow Lite files of one model."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 4)[0] + "/runners/python")
from outcomes import check, expect  # noqa: E402
from detect import detect  # noqa: E402
from same import objects_again  # noqa: E402


def found_again(run):
    """Objects as our predictor finds them on the image file, each with its class's name."""
    rows = []
    for one in detect(run["path"], run["image"], run["confidence"]):
        expect(one["name"] == run["names"][one["class"]], f"{one}")
        rows.append([*one["box"], one["score"], one["class"]])
    return objects_again(np.array(rows, np.float32), np.array(run["objects"], np.float32))


for run in json.loads(Path(sys.argv[1]).read_text()):
    check(f"devices/python/{run['name']}", lambda: found_again(run))
