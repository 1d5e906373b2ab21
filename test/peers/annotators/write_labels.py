"""Labels as LabelMe's and Label Studio's own libraries write them, with what is to come of each."""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
from label_studio_sdk.converter import Converter
from label_studio_sdk.converter.brush import encode_rle
from labelme._label_file import write_label_file
from labelme.utils import img_arr_to_b64

sys.path.insert(0, __file__.rsplit("/", 2)[0])
from outcomes import check  # noqa: E402

FOLDER = Path(sys.argv[1])
WIDTH, HEIGHT = 200, 100
CONFIG = """<View><Image name="image" value="$image"/>
<RectangleLabels name="box" toName="image"><Label value="cat"/></RectangleLabels>
<PolygonLabels name="ring" toName="image"><Label value="dog"/></PolygonLabels>
<BrushLabels name="brush" toName="image"><Label value="sky"/></BrushLabels></View>"""

#: A stroke of two pieces, one of which has a hole; its box and pixels.
MASK = np.zeros((HEIGHT, WIDTH), bool)
MASK[10:30, 40:90] = True
MASK[15:20, 50:60] = False
MASK[60:70, 5:12] = True
MASK_BOX, MASK_AREA = [5, 10, 90, 70], int(MASK.sum())


def expected(name, rows):
    (FOLDER / f"{name}.expected.json").write_text(json.dumps(rows))


def zipped(name, files):
    with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, inside in files:
            archive.write(path, inside)


def shape(kind, points, label, **more):
    own = {"group_id": None, "description": "", "flags": {}, "mask": None, **more}
    return {"label": label, "points": points, "shape_type": kind, **own}


def labelme():
    corners = [[5, 10], [89, 69]]
    cut = MASK[10:70, 5:90]
    masks = [img_arr_to_b64(cut), img_arr_to_b64(cut.astype(np.uint8))]
    shapes = [
        shape("rectangle", [[60.5, 70.25], [10.5, 20.25]], "cat"),
        shape("polygon", [[10, 10], [30, 10], [30, 40]], "dog"),
        shape("circle", [[100, 50], [120, 50]], "cat"),
        *(shape("mask", corners, "sky", mask=mask) for mask in masks),
    ]
    path = FOLDER / "one.json"
    image = (FOLDER / "one.png").read_bytes()
    # Their library looks at the image that it embeds.
    write_label_file(
        str(path),
        shapes=shapes,
        image_path="one.png",
        image_height=HEIGHT,
        image_width=WIDTH,
        image_data=image,
    )
    zipped("labelme", [(path, "one.json")])
    expected(
        "labelme",
        [
            {"class": "cat", "bbox": [10.5, 20.25, 60.5, 70.25]},
            {"class": "dog", "bbox": [10, 10, 30, 40], "area": 300},
            {"class": "cat", "bbox": [80, 30, 120, 70]},
            {"class": "sky", "bbox": MASK_BOX, "area": MASK_AREA},
            {"class": "sky", "bbox": MASK_BOX, "area": MASK_AREA},
        ],
    )


def result(control, kind, value):
    return {
        "id": control,
        "from_name": control,
        "to_name": "image",
        "type": kind,
        "original_width": WIDTH,
        "original_height": HEIGHT,
        "image_rotation": 0,
        "value": value,
    }


def label_studio():
    rle = encode_rle(np.repeat(MASK.ravel().astype(np.uint8) * 255, 4))
    box = {"x": 10, "y": 20, "width": 30, "height": 40, "rotation": 30}
    turned = Converter.rotated_rectangle({"x": 20, "y": 20, "width": 60, "height": 40, "rotation": 30})
    x, y, width, height = turned
    results = [
        result("box", "rectanglelabels", {**box, "rectanglelabels": ["cat"]}),
        result(
            "ring", "polygonlabels", {"points": [[5, 10], [15, 10], [15, 40]], "polygonlabels": ["dog"]}
        ),
        result("brush", "brushlabels", {"format": "rle", "rle": rle, "brushlabels": ["sky"]}),
    ]
    task = {
        "id": 1,
        "data": {"image": "/data/upload/1/0123abcd-one.png"},
        "annotations": [
            {
                "id": 1,
                "result": results,
                "was_cancelled": False,
                "created_at": "2025-01-01T00:00:00Z",
                "completed_by": 1,
            }
        ],
        "predictions": [],
    }
    path = FOLDER / "tasks.json"
    path.write_text(json.dumps([task]))
    zipped("label-studio", [(path, "project.json")])
    rows = [
        # Their arithmetic of a turned rectangle, in pixels.
        {"class": "cat", "bbox": [x, y, x + width, y + height], "area": 60 * 40},
        {"class": "dog", "bbox": [10, 10, 30, 40], "area": 300},
        {"class": "sky", "bbox": MASK_BOX, "area": MASK_AREA},
    ]
    expected("label-studio", rows)
    converter = Converter(CONFIG, project_dir=None)
    converter.convert_to_json_min(str(path), str(FOLDER / "min"), is_dir=False)
    zipped("label-studio-min", [(FOLDER / "min/result.json", "result.json")])
    expected("label-studio-min", rows)


check("annotators/write/labelme", labelme)
check("annotators/write/label-studio", label_studio)
