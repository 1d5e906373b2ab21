"""Runs an exported ONNX or TensorFlow Lite file on an image and prints the objects, one a line.

    pip install numpy pillow onnxruntime        # or ai-edge-litert, for .tflite
    python detect.py model.onnx image.jpg 0.25

Of both formats it takes every output: end_to_end, raw and joined (of a detection model).
"""

import json
import math
import sys
import zipfile

import numpy as np
from PIL import Image, ImageOps

#: Rows that a detector gives at most.
ROWS = 300
#: Grey of what the image leaves free.
GREY = 114


def rows_of_heads(boxes, scores):
    """The two top-k steps of a raw file: the best anchors by their best class, then the best of
    those anchors' scores, so that an anchor may come with several classes. [anchors, 4] and
    [anchors, classes] → rows of x1, y1, x2, y2, score, class."""
    count = min(ROWS, len(scores))
    anchors = np.argsort(-scores.max(1), kind="stable")[:count]
    flat = np.argsort(-scores[anchors].ravel(), kind="stable")[:count]
    anchor, index = anchors[flat // scores.shape[1]], flat % scores.shape[1]
    columns = [boxes[anchor], scores[anchor, index][:, None], index[:, None]]
    return np.concatenate(columns, 1).astype(np.float32)


def suppressed(rows, nms_iou):
    """The rows, surest first, that no surer one of their class overlaps by more than this IoU."""
    # Corners count in whichever order they are.
    low, high = np.minimum(rows[:, :2], rows[:, 2:4]), np.maximum(rows[:, :2], rows[:, 2:4])
    areas = (high - low).prod(1)
    kept = []
    for at, row in enumerate(rows):
        same = [other for other in kept if rows[other, 5] == row[5]]
        sides = np.minimum(high[same], high[at]) - np.maximum(low[same], low[at])
        shared = np.clip(sides, 0, None).prod(1)
        if not (shared > nms_iou * (areas[same] + areas[at] - shared)).any():
            kept.append(at)
    return rows[kept]


def heads_of_joined(values, size):
    """[4 + classes, anchors], centre and size as parts of the image → corners in pixels, scores."""
    height, width = size
    centre, extent = values[:2], values[2:4]
    corners = np.concatenate([centre - extent / 2, centre + extent / 2])
    sides = np.array([width, height, width, height], np.float32)
    return (corners * sides[:, None]).T, values[4:].T


def rounded(value):
    """Halves go up, as in the other runners; Python's own goes to the even number."""
    return math.floor(value + 0.5)


def upright(path):
    """The image the right way up, RGB, what is transparent on white."""
    image = ImageOps.exif_transpose(Image.open(path))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def letterboxed(image, size):
    """The image as large as fits, in the middle of the input: pixels [height, width, 3] of 0 to 1,
    and how it lies there."""
    height, width = size
    scale = min(width / image.width, height / image.height)
    laid = max(1, rounded(image.width * scale)), max(1, rounded(image.height * scale))
    left = max(0, rounded((width - laid[0]) / 2 - 0.1))
    top = max(0, rounded((height - laid[1]) / 2 - 0.1))
    canvas = Image.new("RGB", (width, height), (GREY, GREY, GREY))
    canvas.paste(image.resize(laid, Image.Resampling.BILINEAR), (left, top))
    scales = laid[0] / image.width, laid[1] / image.height
    return np.asarray(canvas, np.float32) / 255, (left, top, scales)


def objects_of(rows, image, placement, confidence):
    """The objects of rows in pixels of the image, surest first."""
    left, top, scales = placement
    for x1, y1, x2, y2, score, index in rows[:, :6].tolist():
        if score < confidence:
            continue
        across = [min(image.width, max(0, (x - left) / scales[0])) for x in (x1, x2)]
        down = [min(image.height, max(0, (y - top) / scales[1])) for y in (y1, y2)]
        if across[1] > across[0] and down[1] > down[0]:
            box = [across[0], down[0], across[1], down[1]]
            yield {"class": int(index), "score": score, "box": box}


class OnnxFile:
    """By onnxruntime."""

    def __init__(self, path):
        import onnxruntime

        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.size = tuple(self.session.get_inputs()[0].shape[2:])
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.names = list(json.loads(metadata["names"]).values())
        self.nms_iou = metadata.get("nms_iou")

    def rows(self, pixels):
        """Of an image [height, width, 3]."""
        images = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])
        names = [output.name for output in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(names, {"images": images})))
        if "output0" in outputs:
            return outputs["output0"][0]
        return rows_of_heads(outputs["boxes"][0], outputs["scores"][0])


class TfliteFile:
    """By LiteRT, XNNPACK underneath."""

    def __init__(self, path):
        from ai_edge_litert.interpreter import Interpreter

        self.interpreter = Interpreter(path)
        self.signature = self.interpreter.get_signature_runner("serving_default")
        self.size = tuple(self.interpreter.get_input_details()[0]["shape"][1:3].tolist())
        with zipfile.ZipFile(path) as appended:
            self.names = appended.read("labels.txt").decode().split("\n")[:-1]
            self.nms_iou = json.loads(appended.read("metadata.json")).get("nms_iou")

    def rows(self, pixels):
        """Of an image [height, width, 3]."""
        outputs = self.signature(images=np.ascontiguousarray(pixels[None]))
        if "boxes" in outputs:
            return rows_of_heads(outputs["boxes"][0], outputs["scores"][0])
        return rows_of_heads(*heads_of_joined(outputs["output0"][0], self.size))


def detect(path, image_path, confidence=0.25):
    """The objects that a file finds on an image."""
    file = TfliteFile(path) if path.endswith(".tflite") else OnnxFile(path)
    image = upright(image_path)
    pixels, placement = letterboxed(image, file.size)
    rows = file.rows(pixels)
    # What an end-to-end file suppressed stays as it is: its rows have no score.
    if file.nms_iou is not None:
        rows = suppressed(rows[rows[:, 4] > 0, :6], float(file.nms_iou))
    for found in objects_of(rows, image, placement, confidence):
        yield {**found, "name": file.names[found["class"]]}


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    for one in detect(*sys.argv[1:3], *map(float, sys.argv[3:])):
        print(json.dumps(one, ensure_ascii=False))
