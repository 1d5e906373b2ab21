"""onnx and onnxruntime read the files of exported models, and give what our predictor gives."""

import ast
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check, expect  # noqa: E402

#: Pixels, and a score in 0 to 1: what our own nodes allow at up to 640 pixels. Files of lower
#: precision are the same file in two releases of one runtime, whose kernels may round otherwise.
TOLERANCES = {"fp32": (1e-3, 1e-5), "fp16": (0.05, 2e-3), "int8": (0.5, 0.02)}
DETECTIONS = 300


def checked(file):
    """The checker with every inference of shapes, and no name twice."""
    onnx.checker.check_model(file["path"], full_check=True)
    model = onnx.load(file["path"])
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    names = [node.name for node in model.graph.node]
    expect(all(names) and len(set(names)) == len(names), "nodes without a name of their own")
    opset = [(one.domain, one.version) for one in model.opset_import]
    expect(opset == [("", 17)], f"opset {opset}")
    return f"{len(names)} nodes, {Path(file['path']).stat().st_size / 1e6:.1f} MB"


def described(file):
    """Metadata as Ultralytics reads them: literals of Python."""
    session = opened(file)
    said = session.get_modelmeta().custom_metadata_map
    names = ast.literal_eval(said["names"])
    expect([names[str(at)] for at in range(len(names))] == file["classes"], f"{names}")
    expect(ast.literal_eval(said["imgsz"]) == file["size"], said["imgsz"])
    expect(ast.literal_eval(said["end2end"]) is (file["output"] == "end_to_end"), said["end2end"])
    task = {"detection": "detect", "segmentation": "segment"}[file["task"]]
    expect(said["task"] == task, said["task"])
    whole = {name: int(said[name]) for name in ("stride", "batch", "channels")}
    wanted = {"stride": 32, "batch": file["batch"] or 1, "channels": 3}
    expect(whole == wanted, f"{whole} instead of {wanted}")


def opened(file):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(file["path"], options, ["CPUExecutionProvider"])


def rows_of(outputs, file):
    """Rows of each image: those of the file, or the host's two top-k steps."""
    if file["output"] == "end_to_end":
        return outputs["output0"]
    found = []
    for boxes, scores in zip(outputs["boxes"], outputs["scores"]):
        count = min(DETECTIONS, len(scores))
        anchors = np.argsort(-scores.max(1), kind="stable")[:count]
        flat = np.argsort(-scores[anchors].ravel(), kind="stable")[:count]
        anchor, index = anchors[flat // scores.shape[1]], flat % scores.shape[1]
        columns = [boxes[anchor], scores[anchor, index][:, None], index[:, None]]
        found.append(np.concatenate(columns, 1).astype(np.float32))
    return np.stack(found)


def alike(name, found, wanted, precision):
    """Every row that is clear of the cut has its equal, whatever the order of near-ties."""
    box, score = TOLERANCES[precision]
    expect(found.shape == wanted.shape, f"{name}: {found.shape} instead of {wanted.shape}")
    expect(np.isfinite(found).all(), f"{name}: what is no number")
    expect(np.abs(found[:, 4] - wanted[:, 4]).max() <= score, f"{name}: scores")
    worst, compared = 0.0, 0
    for row in wanted[wanted[:, 4] > wanted[-1, 4] + 2 * score]:
        same = found[(found[:, 5] == row[5]) & (np.abs(found[:, 4] - row[4]) <= 2 * score)]
        expect(len(same), f"{name}: none like {row[:6]}")
        far = np.abs(np.delete(same, [4, 5], 1) - np.delete(row, [4, 5])).max(1).min()
        worst, compared = max(worst, float(far)), compared + 1
    expect(worst <= box, f"{name}: boxes differ by {worst} pixels")
    expect(compared > 0, f"{name}: nothing to compare")
    return worst, compared


def computed(file):
    """The same rows as our predictor, one by one and together."""
    session, wanted = opened(file), np.array(file["rows"], np.float32)
    height, width = file["size"]
    precision = file["precision"]
    images = np.fromfile(file["images"], np.float32).reshape(-1, 3, height, width)
    worst, rows = 0.0, 0
    for batch in [file["batch"]] if file["batch"] else [1, 2, 3, 4]:
        for first in range(0, len(images) - batch + 1, batch):
            values = session.run(None, {"images": images[first : first + batch]})
            outputs = {one.name: value for one, value in zip(session.get_outputs(), values)}
            for at, found in enumerate(rows_of(outputs, file)):
                far, compared = alike(f"batch {batch}", found, wanted[first + at], precision)
                worst, rows = max(worst, far), rows + compared
    return f"{rows} rows, boxes within {worst:.1e} pixels"


for file in json.loads(Path(sys.argv[1]).read_text()):
    check(f"exports/onnx/{file['name']}/checker", lambda: checked(file))
    check(f"exports/onnxruntime/{file['name']}/metadata", lambda: described(file))
    check(f"exports/onnxruntime/{file['name']}/rows", lambda: computed(file))
