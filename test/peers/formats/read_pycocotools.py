"""pycocotools reads the COCO archive: images, categories, boxes, areas and masks."""

import contextlib
import io

from datasets import CLASSES, DATASETS, IMAGES, same_boxes, unpacked
from outcomes import check, expect
from PIL import Image
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

SPLITS = ("train", "val")
folder = unpacked("coco")


def opened(split):
    with contextlib.redirect_stdout(io.StringIO()):
        return COCO(str(folder / f"annotations/instances_{split}.json"))


datasets = {split: opened(split) for split in SPLITS}


def images():
    files = [image["file_name"] for coco in datasets.values() for image in coco.dataset["images"]]
    expect(sorted(files) == sorted(IMAGES), f"{sorted(files)} instead of {sorted(IMAGES)}")
    for split, coco in datasets.items():
        expect(coco.imgs, f"nothing in {split}")
        for image in coco.dataset["images"]:
            with Image.open(folder / f"images/{split}/{image['file_name']}") as opened_image:
                expect(opened_image.size == (image["width"], image["height"]), image["file_name"])
            wanted = IMAGES[image["file_name"]]
            expect((image["width"], image["height"]) == (wanted["width"], wanted["height"]), "size")


def categories():
    for coco in datasets.values():
        names = [one["name"] for one in coco.loadCats(sorted(coco.getCatIds()))]
        expect(names == CLASSES, f"{names} instead of {CLASSES}")


def boxes():
    for coco in datasets.values():
        for image in coco.dataset["images"]:
            found = []
            for one in coco.loadAnns(coco.getAnnIds(imgIds=[image["id"]])):
                x, y, w, h = one["bbox"]
                found.append((coco.cats[one["category_id"]]["name"], x, y, x + w, y + h))
            same_boxes(image["file_name"], found, 1e-9)


def masks():
    """A ring's area is that of its drawn mask, but for the pixels that its edge crosses."""
    drawn_count = 0
    for coco in datasets.values():
        for one in coco.dataset["annotations"]:
            drawn = float(coco.annToMask(one).sum())
            drawn_count += 1
            edge = 2 * (one["bbox"][2] + one["bbox"][3])
            expect(abs(drawn - one["area"]) <= edge, f"{drawn} pixels, area {one['area']}")
    return f"{drawn_count} annotations"


def joined():
    """Both splits in one document, whose ids are unique."""
    document = {"images": [], "annotations": []}
    for coco in datasets.values():
        document["categories"] = coco.dataset["categories"]
        for part in ("images", "annotations"):
            document[part] += coco.dataset[part]
    return document


def indexed(document):
    coco = COCO()
    coco.dataset = document
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
    return coco


def splits_joined():
    document = joined()
    coco = indexed(document)
    expect(len(coco.imgs) == len(IMAGES), f"{len(coco.imgs)} images of {len(IMAGES)}")
    wanted = sum(len(image["boxes"]) for image in IMAGES.values())
    expect(len(coco.anns) == wanted, f"{len(coco.anns)} annotations of {wanted}")


def torchvision_masks():
    """As torchvision's wrapper of CocoDetection reads a segmentation; torch itself is too large."""
    for coco in datasets.values():
        for one in coco.dataset["annotations"]:
            image = coco.imgs[one["image_id"]]
            canvas = (image["height"], image["width"])
            mask = mask_utils.decode(
                mask_utils.merge(mask_utils.frPyObjects(one["segmentation"], *canvas))
            )
            expect(mask.shape == canvas and mask.any(), f"annotation {one['id']} has no mask")


def imported_masks():
    """All pieces and holes of masks that were imported are in the mask that left."""
    before = indexed(DATASETS["masks"]["document"])
    for one in before.anns.values():
        one.setdefault("iscrowd", 0)
    stems = {
        image["file_name"].rsplit(".", 1)[0].replace(" ", "_"): image["id"]
        for image in before.imgs.values()
    }
    archive = unpacked(DATASETS["masks"]["archive"])
    with contextlib.redirect_stdout(io.StringIO()):
        after = COCO(str(archive / "annotations/instances_train.json"))
    expect(len(after.anns) == len(before.anns), f"{len(after.anns)} masks")
    apart = []
    for one in after.anns.values():
        stem = after.imgs[one["image_id"]]["file_name"].removesuffix("_000000.png")
        [own] = before.imgToAnns[stems[stem]]
        left, right = before.annToMask(own), after.annToMask(one)
        apart.append(int((left != right).sum()))
    # Where polygons overlap, pixels that an edge crosses may fall to the other side.
    expect(sorted(apart)[:3] == [0, 0, 0] and max(apart) <= 40, f"{apart} pixels differ")
    return f"{apart} pixels differ"


def comparison():
    """Our comparison of two jobs is COCOeval on the exported dataset, to 1e-6."""
    truth = indexed(joined())
    images = {image["file_name"]: image["id"] for image in truth.dataset["images"]}
    categories = {one["name"]: one["id"] for one in truth.dataset["categories"]}
    found = []
    for one in DATASETS["compared"]["detections"]:
        x1, y1, x2, y2 = one["bbox"]
        found.append(
            {
                "image_id": images[one["file"]],
                "category_id": categories[one["class"]],
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "score": one["confidence"],
            }
        )
    answer = DATASETS["compared"]["answer"]
    figures = {}
    for name, ids in {None: list(categories.values()), **{n: [i] for n, i in categories.items()}}.items():
        with contextlib.redirect_stdout(io.StringIO()):
            evaluation = COCOeval(truth, truth.loadRes([dict(one) for one in found]), "bbox")
            evaluation.params.catIds = ids
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        figures[name] = (evaluation.stats[1], evaluation.stats[0])
    ours = {one["class"]: one for one in answer["per_class"]} | {None: answer["overall"]}
    for name, (ap50, ap) in figures.items():
        for ours_is, theirs in ((ours[name]["ap50"], ap50), (ours[name]["ap50_95"], ap)):
            expect(abs(ours_is - theirs) <= 1e-6, f"{name}: ours {ours_is}, pycocotools {theirs}")
    return f"AP50 {figures[None][0]:.6f}, AP {figures[None][1]:.6f}"


#: A model tells no more of an image.
DETECTIONS_MAX = 300


def model_comparison():
    """Figures of two models are COCOeval's of all that each finds: AP, and what counts at its own
    confidence, to 1e-6."""
    models = DATASETS["models"]
    image_ids = {name: at for at, name in enumerate(models["images"], start=1)}
    category_ids = {name: at for at, name in enumerate(models["classes"], start=1)}

    def entry(one):
        x1, y1, x2, y2 = one["bbox"]
        bbox = [x1, y1, x2 - x1, y2 - y1]
        ids = {"image_id": image_ids[one["image"]], "category_id": category_ids[one["class"]]}
        return {**ids, "bbox": bbox, "area": bbox[2] * bbox[3], "iscrowd": 0}

    truth = indexed(
        {
            "images": [{"id": at, "width": 1000, "height": 1000} for at in image_ids.values()],
            "categories": [{"id": at, "name": name} for name, at in category_ids.items()],
            "annotations": [
                {"id": at, **entry(one)} for at, one in enumerate(models["truths"], start=1)
            ],
        }
    )
    told = []
    for side, found in models["detections"].items():
        rows = [{**entry(one), "score": one["confidence"]} for one in found]
        ours = {one["class"]: one[side] for one in models["answer"]["figures"]["per_class"]}
        ours[None] = models["answer"]["figures"]["overall"][side]
        for name, ids in {None: list(category_ids.values()), **{n: [i] for n, i in category_ids.items()}}.items():
            with contextlib.redirect_stdout(io.StringIO()):
                evaluation = COCOeval(truth, truth.loadRes([dict(row) for row in rows]), "bbox")
                evaluation.params.catIds = ids
                evaluation.evaluate()
                evaluation.accumulate()
                evaluation.summarize()
            # Of all sizes, at an IoU of 0.5, and not of a hundred of an image alone: detections by
            # falling score, and what each matched.
            with contextlib.redirect_stdout(io.StringIO()):
                every = COCOeval(truth, truth.loadRes([dict(row) for row in rows]), "bbox")
                every.params.catIds = ids
                every.params.maxDets = [DETECTIONS_MAX]
                every.evaluate()
            images_of = [
                one for one in every.evalImgs if one and one["aRng"] == every.params.areaRng[0]
            ]
            sure = [
                bool(match)
                for one in images_of
                for score, match in zip(one["dtScores"], one["dtMatches"][0])
                if score >= models["confidences"][side]
            ]
            theirs = {
                "ap50": evaluation.stats[1],
                "ap50_95": evaluation.stats[0],
                "detections": len(sure),
                "true_positives": sum(sure),
                "truths": sum(len(one["gtIds"]) for one in images_of),
            }
            for figure, value in theirs.items():
                if value == -1:  # COCO's word for a class without a truth
                    value = None
                same = ours[name][figure] == value or (
                    None not in (ours[name][figure], value) and abs(ours[name][figure] - value) <= 1e-6
                )
                expect(same, f"{side}, {name}, {figure}: ours {ours[name][figure]}, theirs {value}")
            if name is None:
                told.append(f"{side}: AP50 {theirs['ap50']:.6f}, AP {theirs['ap50_95']:.6f}")
    return "; ".join(told)


for work in (
    *(images, categories, boxes, masks),
    *(splits_joined, torchvision_masks, imported_masks, comparison, model_comparison),
):
    check(f"formats/pycocotools/{work.__name__}", work)
