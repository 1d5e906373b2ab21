"""What both readers need: Debian's torch on the path, and the archives with what they hold."""

import sys

folder = __file__.rsplit("/", 2)[0]
sys.path[:0] = [folder, f"{folder}/formats"]
sys.path.append(sys.argv[2])
from datasets import CLASSES, IMAGES, same_boxes, unpacked  # noqa: E402, F401
from outcomes import check, expect  # noqa: E402, F401


def all_images(files):
    expect(sorted(files) == sorted(IMAGES), f"{sorted(files)} instead of {sorted(IMAGES)}")
