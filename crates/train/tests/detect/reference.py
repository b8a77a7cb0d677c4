"""Prints the values that `average.rs` is compared with: python3 reference.py, with pycocotools and NumPy."""

import contextlib
import io

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

# Seed, images, classes, most annotations and detections of an image, percentage of regions of many.
SETS = [
    (1, 1, 1, 1, 1, 0),
    (2, 20, 3, 5, 10, 0),
    (3, 40, 4, 6, 20, 30),
    (4, 30, 2, 12, 60, 15),
    (5, 50, 4, 9, 40, 20),
    (6, 12, 1, 40, 400, 10),
    (7, 100, 20, 8, 30, 10),
    (8, 60, 5, 0, 8, 0),
    (9, 25, 3, 20, 150, 60),
    (10, 300, 10, 15, 60, 5),
]


class Draws:
    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound

    def bbox(self):
        left, top = self.below(500) * 0.5, self.below(500) * 0.5
        return [left, top, self.below(160) * 0.5, self.below(160) * 0.5]


def image(draws, classes, objects, found, crowds):
    there = []
    for _ in range(draws.below(objects + 1)):
        label, bbox = draws.below(classes), draws.bbox()
        there.append((label, bbox, draws.below(100) < crowds))
    detections = []
    for _ in range(draws.below(found + 1)):
        label, bbox = draws.below(classes), draws.bbox()
        if there and draws.below(10) < 7:
            like = there[draws.below(len(there))]
            near = [value + (draws.below(25) - 12.0) * 0.25 for value in like[1]]
            bbox = near[:2] + [max(near[2], 0.0), max(near[3], 0.0)]
            label = like[0]
        detections.append((label, bbox, draws.below(64) / 64.0))
    return there, detections


def evaluate(seed, images, classes, objects, found, crowds):
    draws = Draws(seed)
    annotations, results = [], []
    for number in range(images):
        there, detections = image(draws, classes, objects, found, crowds)
        for label, bbox, crowd in there:
            annotations.append(
                dict(id=len(annotations) + 1, image_id=number, category_id=label, bbox=bbox,
                     area=bbox[2] * bbox[3], iscrowd=int(crowd)))
        results += [dict(image_id=number, category_id=label, bbox=bbox, score=score)
                    for label, bbox, score in detections]
    coco = COCO()
    coco.dataset = dict(images=[dict(id=number) for number in range(images)], annotations=annotations,
                        categories=[dict(id=label) for label in range(classes)], info={})
    coco.createIndex()
    if not annotations or not results:
        return None
    evaluation = COCOeval(coco, coco.loadRes(results), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return evaluation.stats[0], evaluation.stats[1]


for numbers in SETS:
    with contextlib.redirect_stdout(io.StringIO()):
        values = evaluate(*numbers)
    if values is not None and values[0] > -1:
        print(f"        ({list(numbers)}, {float(values[0])!r}, {float(values[1])!r}),")
