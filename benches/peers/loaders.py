#!/usr/bin/env python3
"""Prepares pictures with another loader, and prints its CPU time a picture: loaders.py PEER RECIPE FOLDER WORKERS

PEER: gradus (`gradus.Loader`, for 10 seconds), pillow, simplejpeg-opencv (which does not antialias), torchvision
(DataLoader with Pillow), torchvision-tensors (DataLoader with torchvision's own decoder and v2 transforms of bytes),
datasets (Hugging Face's), webdataset, dali (its CPU back-end).
RECIPE: resize256-randomcrop224 or imagenet-train. One pass over all pictures, but for gradus, decoded, cropped, mirrored, normalised, as
32-bit floats. Prints one JSON object: peer, images, seconds, cpu_us_per_image (user and system, with child processes)."""
import glob
import io
import json
import os
import random
import resource
import sys
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
import numpy as np

MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
BATCH = 64
SECONDS = 10


def worked():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def normalised(pixels):
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray((pixels.astype(np.float32) * (1 / (255 * STD)) - MEAN / STD).transpose(2, 0, 1))


def short_side(width, height):
    return (256, 256 * height // width) if width <= height else (256 * width // height, 256)


def one_by_one(prepare):
    def work(paths, _workers):
        for path in paths:
            with open(path, "rb") as file:
                prepare(file.read())
        return len(paths)

    return work


def cut(pixels):
    y, x = random.randint(0, pixels.shape[0] - 224), random.randint(0, pixels.shape[1] - 224)
    return normalised(pixels[y : y + 224, x : x + 224])


def pillow(recipe):
    from PIL import Image

    assert recipe == "resize256-randomcrop224"

    def prepare(data):
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return cut(np.asarray(image.resize(short_side(*image.size), Image.BILINEAR)))

    return one_by_one(prepare)


def simplejpeg_opencv(recipe):
    import cv2
    import simplejpeg

    assert recipe == "resize256-randomcrop224"
    cv2.setNumThreads(1)

    def prepare(data):
        pixels = simplejpeg.decode_jpeg(data, "RGB")
        return cut(cv2.resize(pixels, short_side(pixels.shape[1], pixels.shape[0]), interpolation=cv2.INTER_LINEAR))

    return one_by_one(prepare)


def transform(recipe):
    from torchvision import transforms as t

    first = [t.RandomResizedCrop(224)] if recipe == "imagenet-train" else [t.Resize(256), t.RandomCrop(224)]
    return t.Compose(first + [t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN.tolist(), STD.tolist())])


def torchvision(recipe):
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    torch.set_num_threads(1)
    prepare = transform(recipe)

    class Pictures(Dataset):
        def __init__(self, paths):
            self.paths = paths

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, at):
            with open(self.paths[at], "rb") as file:
                return prepare(Image.open(file).convert("RGB")), 0

    def work(paths, workers):
        return sum(len(x) for x, _ in DataLoader(Pictures(paths), batch_size=BATCH, num_workers=workers, shuffle=True))

    return work


def torchvision_tensors(recipe):
    import torch
    from torch.utils.data import DataLoader, Dataset
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    first = [v2.RandomResizedCrop(224)] if recipe == "imagenet-train" else [v2.Resize(256), v2.RandomCrop(224)]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN.tolist(), STD.tolist())]
    prepare = v2.Compose(first + [v2.RandomHorizontalFlip()] + last)

    class Pictures(Dataset):
        def __init__(self, paths):
            self.paths = paths

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, at):
            return prepare(decode_jpeg(read_file(self.paths[at]), mode=ImageReadMode.RGB)), 0

    def work(paths, workers):
        return sum(len(x) for x, _ in DataLoader(Pictures(paths), batch_size=BATCH, num_workers=workers, shuffle=True))

    return work


def datasets(recipe):
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    import datasets
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    prepare = transform(recipe)

    class Prepared(torch.utils.data.Dataset):
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, at):
            return prepare(self.rows[at]["image"].convert("RGB")), 0

    def work(paths, workers):
        features = datasets.Features({"image": datasets.Image()})
        encoded = {"image": [{"bytes": None, "path": path} for path in paths]}
        table = datasets.table.InMemoryTable.from_pydict(encoded, schema=features.arrow_schema)
        # Named by hand: the hash that would name it cannot be computed with Python 3.11 and PyArrow 26.
        rows = datasets.Dataset(table, datasets.DatasetInfo(features=features), fingerprint="bench")
        start_again()
        return sum(len(x) for x, _ in DataLoader(Prepared(rows), batch_size=BATCH, num_workers=workers, shuffle=True))

    return work


def webdataset(recipe):
    import torch
    import webdataset as wds

    torch.set_num_threads(1)
    prepare = transform(recipe)

    def work(paths, workers):
        folder = os.path.dirname(os.path.dirname(paths[0])) + "-tars"
        os.makedirs(folder, exist_ok=True)
        for first in range(0, len(paths), 250):
            name = os.path.join(folder, f"{len(paths)}-{first // 250:04}.tar")
            if not os.path.exists(name):
                with wds.TarWriter(name + ".part") as tar:
                    for number, path in enumerate(paths[first : first + 250], first):
                        with open(path, "rb") as file:
                            tar.write({"__key__": f"{number:06}", "jpg": file.read(), "cls": "0"})
                os.rename(name + ".part", name)
        tars = sorted(glob.glob(os.path.join(folder, f"{len(paths)}-*.tar")))
        start_again()
        pictures = wds.WebDataset(tars, shardshuffle=8).shuffle(500).decode("pil").to_tuple("jpg", "cls")
        batches = wds.WebLoader(pictures.map_tuple(prepare, int).batched(BATCH), batch_size=None, num_workers=workers)
        return sum(len(x) for x, _ in batches)

    return work


def dali(recipe):
    from nvidia.dali import fn, pipeline_def, types

    def work(paths, workers):
        data = [np.fromfile(path, np.uint8) for path in paths]
        count = len(data) // BATCH * BATCH
        at = [0]

        def source():
            first, at[0] = at[0], (at[0] + BATCH) % count
            return data[first : first + BATCH]

        @pipeline_def(batch_size=BATCH, num_threads=workers, device_id=None)
        def pipeline():
            files = fn.external_source(source=source, dtype=types.UINT8)
            place = {}
            if recipe == "imagenet-train":
                area = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}
                images = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, **area)
                images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
            else:
                images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
                images = fn.resize(images, resize_shorter=256.0, interp_type=types.INTERP_LINEAR, antialias=True)
                draw = [fn.random.uniform(range=(0, 1)) for _ in range(2)]
                place = {"crop": (224, 224), "crop_pos_x": draw[0], "crop_pos_y": draw[1]}
            scale = {"mean": (MEAN * 255).tolist(), "std": (STD * 255).tolist()}
            return fn.crop_mirror_normalize(
                images, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(), **scale, **place
            )

        made = pipeline()
        made.build()
        made.run()
        start_again()
        for _ in range(count // BATCH):
            made.run()
        return count

    return work


def gradus(recipe):
    import gradus
    import torch

    torch.set_num_threads(1)

    def work(paths, threads):
        # The thread that asks for batches makes some, too. As with `gradus data bench`, what is made ahead at the end counts.
        loader = gradus.Loader(os.path.dirname(os.path.dirname(paths[0])), recipe, BATCH, workers=threads - 1)
        images = 0
        while True:
            for x, _ in loader:
                images += len(x)
                if time.perf_counter() - START[0] > SECONDS:
                    return images

    return work


START = [0.0, 0.0]


def start_again():
    """Measures from here on: what came before is made once, however long one trains."""
    START[:] = time.perf_counter(), worked()


PEERS = {
    "gradus": gradus,
    "pillow": pillow,
    "simplejpeg-opencv": simplejpeg_opencv,
    "torchvision": torchvision,
    "torchvision-tensors": torchvision_tensors,
    "datasets": datasets,
    "webdataset": webdataset,
    "dali": dali,
}


def main():
    peer, recipe, folder, workers = sys.argv[1:]
    paths = sorted(glob.glob(os.path.join(folder, "**", "*.jpg"), recursive=True))
    work = PEERS[peer](recipe)
    start_again()
    images = work(paths, int(workers))
    seconds, cpu = time.perf_counter() - START[0], worked() - START[1]
    print(json.dumps({"peer": peer, "images": images, "seconds": seconds, "cpu_us_per_image": cpu * 1e6 / images}))


if __name__ == "__main__":
    main()
