"""Writes data/annotations.json in COCO's form."""
import json
import pathlib
import random

random.seed(3)
here = pathlib.Path(__file__).parent / "data"
here.mkdir(exist_ok=True)
images, annotations = [], []
for i in range(6):
    images.append({"id": i, "width": 64, "height": 64, "file_name": f"{i:06d}.png"})
    for _ in range(random.randint(1, 3)):
        w, h = random.randint(10, 24), random.randint(10, 24)
        annotations.append({"id": len(annotations), "image_id": i,
                            "category_id": random.randint(1, 3),
                            "bbox": [random.randint(0, 63 - w), random.randint(0, 63 - h), w, h],
                            "area": w * h, "iscrowd": 0})
(here / "annotations.json").write_text(json.dumps(
    {"images": images, "annotations": annotations,
     "categories": [{"id": k, "name": n} for k, n in ((1, "red"), (2, "green"), (3, "blue"))]}))
