"""Trains YOLO26n from scratch, from the last checkpoint where there is one, and looks at val.

Given one argument, JSON: `folder` (data.yaml, truth.json, images), `torch` (a folder with it),
`epochs`, `batch`, `size`, `seed`. Leaves times.jsonl, processor seconds of each epoch's training, and
found.json. One thread; its own validation chooses the epoch.
"""

import json
import os
import sys
import time
from pathlib import Path

options = json.loads(sys.argv[1])
folder = Path(options["folder"])
os.environ |= {"YOLO_OFFLINE": "1", "YOLO_VERBOSE": "False", "YOLO_CONFIG_DIR": str(folder)}
sys.path.append(options["torch"])
import torch  # noqa: E402
from ultralytics import YOLO  # noqa: E402

LAST = folder / "ultralytics/weights/last.pt"
began = 0.0


def on_start(_trainer):
    global began
    torch.set_num_threads(1)
    began = time.process_time()


def on_end(trainer):
    seconds = time.process_time() - began
    with open(folder / "times.jsonl", "a") as file:
        file.write(json.dumps({"epoch": trainer.epoch + 1, "seconds": seconds}) + "\n")
    print(f"  epoch {trainer.epoch + 1}/{options['epochs']}: {seconds:.1f} s", flush=True)


def train():
    # The checkpoint of a training that has ended tells no epoch.
    epoch = torch.load(LAST, weights_only=False)["epoch"] if LAST.exists() else None
    if epoch == -1:
        return
    model = YOLO(LAST if epoch is not None else "yolo26n.yaml")
    model.add_callback("on_train_epoch_start", on_start)
    model.add_callback("on_train_epoch_end", on_end)
    if epoch is not None:
        model.train(resume=True)
        return
    model.train(
        data=str(folder / "data.yaml"),
        epochs=options["epochs"],
        imgsz=options["size"],
        batch=options["batch"],
        device="cpu",
        workers=0,
        pretrained=False,
        plots=False,
        project=str(folder),
        name="ultralytics",
        exist_ok=True,
        seed=options["seed"],
        verbose=False,
    )


def look():
    model = YOLO(LAST.with_name("best.pt"))
    with open(folder / "truth.json") as file:
        images = json.load(file)["images"]
    found = []
    for image in images:
        path = folder / "images/test" / image["file_name"]
        [result] = model.predict(
            str(path), imgsz=options["size"], conf=0.001, max_det=300, device="cpu", verbose=False
        )
        rows = result.boxes
        for box, score, index in zip(rows.xyxy.tolist(), rows.conf.tolist(), rows.cls.tolist()):
            x1, y1, x2, y2 = box
            row = {"image_id": image["id"], "category_id": int(index) + 1, "score": score}
            found.append(row | {"bbox": [x1, y1, x2 - x1, y2 - y1]})
    with open(folder / "found.json.part", "w") as file:
        json.dump(found, file)
    os.rename(folder / "found.json.part", folder / "found.json")


train()
look()
print(json.dumps({"torch": torch.__version__}))
