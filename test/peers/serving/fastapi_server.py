"""What its users would write: FastAPI, Pillow and onnxruntime, JPEG in, boxes out."""

import io
import sys

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI, UploadFile
from PIL import Image

PATH, PORT, SIZE, THREADS = sys.argv[1], *map(int, sys.argv[2:])
CONFIDENCE = 0.25
GREY = (114, 114, 114)

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = THREADS
session = onnxruntime.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
INPUT = session.get_inputs()[0].name
app = FastAPI()


@app.post("/predict")
def predict(file: UploadFile):
    image = Image.open(io.BytesIO(file.file.read())).convert("RGB")
    scale = SIZE / max(image.size)
    width, height = (round(side * scale) for side in image.size)
    left, top = (SIZE - width) // 2, (SIZE - height) // 2
    square = Image.new("RGB", (SIZE, SIZE), GREY)
    square.paste(image.resize((width, height), Image.Resampling.BILINEAR), (left, top))
    pixels = np.ascontiguousarray(np.asarray(square, np.float32).transpose(2, 0, 1)[None] / 255)
    rows = session.run(None, {INPUT: pixels})[0][0]
    rows = rows[rows[:, 4] >= CONFIDENCE]
    offset = np.array([left, top, left, top], np.float32)
    return [
        {
            "class": int(row[5]),
            "confidence": float(row[4]),
            "bbox": ((row[:4] - offset) / scale).tolist(),
        }
        for row in rows
    ]


@app.get("/")
def ready():
    return {}


uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
