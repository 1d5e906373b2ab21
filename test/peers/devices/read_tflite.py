"""LiteRT for Python reads TensorFlow Lite files: signature, one delegated part, our rows."""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

sys.path.insert(0, __file__.rsplit("/", 2)[0])
sys.path.insert(0, __file__.rsplit("/", 4)[0] + "/runners/python")
from outcomes import check, expect  # noqa: E402
from detect import heads_of_joined, rows_of_heads  # noqa: E402
from same import objects_again, same_rows  # noqa: E402

#: Of the objects of a trained model.
INT8_SHARE = 0.9


def signature(file):
    interpreter = Interpreter(file["path"], num_threads=1)
    masks = file["task"] == "segmentation"
    raw = ["boxes", "masks", "prototypes", "scores"] if masks else ["boxes", "scores"]
    joined = ["output0", "output1"] if masks else ["output0"]
    outputs = sorted(joined if file["output"] == "joined" else raw)
    said = interpreter.get_signature_list()
    named = {name: {key: sorted(of) for key, of in one.items()} for name, one in said.items()}
    wanted = {"serving_default": {"inputs": ["images"], "outputs": outputs}}
    expect(named == wanted, f"{said}")


def delegated(file):
    """XNNPACK takes all of it: no operator is left to slower kernels, no values are handed over."""
    interpreter = Interpreter(file["path"], num_threads=1)
    interpreter.allocate_tensors()
    operators = interpreter._get_ops_details()
    parts = [one for one in operators if one["op_name"] == "DELEGATE"]
    expect(len(parts) == 1, f"{len(parts)} parts")
    wanted = {one["index"] for one in interpreter.get_output_details()}
    expect(wanted <= set(parts[0]["outputs"]), "outputs come from elsewhere")
    return f"{len(operators) - 1} operators in one part"


def appended(file):
    with zipfile.ZipFile(file["path"]) as archive:
        expect(archive.testzip() is None, "a broken archive")
        expect(archive.namelist()[0] == "metadata.json", f"{archive.namelist()}")
        said = json.loads(archive.read("metadata.json"))
        labels = archive.read("labels.txt").decode().split("\n")[:-1]
    expect(said["imgsz"] == file["size"], f"{said['imgsz']}")
    expect(list(said["names"].values()) == file["classes"], f"{said['names']}")
    expect(len(labels) == len(file["classes"]), f"{len(labels)} lines")


def computed(file):
    interpreter = Interpreter(file["path"], num_threads=1)
    run = interpreter.get_signature_runner("serving_default")
    images = np.fromfile(file["images"], np.float32).reshape(-1, 1, 3, *file["size"])
    said = []
    for image, wanted in zip(images, file["rows"]):
        outputs = run(images=np.ascontiguousarray(image.transpose(0, 2, 3, 1)))
        if file["output"] == "joined":
            values = outputs["output0"][0][: 4 + len(file["classes"])]
            rows = rows_of_heads(*heads_of_joined(values, file["size"]))
        else:
            rows = rows_of_heads(outputs["boxes"][0], outputs["scores"][0])
        rows_wanted = np.array(wanted, np.float32)
        if file["precision"] == "fp32":
            said.append(same_rows(rows, rows_wanted))
        else:
            share = INT8_SHARE if file["precision"] == "int8" else 1.0
            said.append(objects_again(rows, rows_wanted, share))
    return "; ".join(said)


for file in json.loads(Path(sys.argv[1]).read_text()):
    case = f"devices/litert/{file['name']}"
    check(f"{case}/signature", lambda: signature(file))
    check(f"{case}/delegated", lambda: delegated(file))
    check(f"{case}/appended", lambda: appended(file))
    check(f"{case}/rows", lambda: computed(file))
