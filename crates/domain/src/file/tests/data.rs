//! The `data:` of a `train:` section, and other paths.

use super::{check, run_with};

/// A `data:` section that is right but for `line`.
fn data_with(line: &str) -> String {
    format!("train:\n  model: cnn\n  epochs: 3\n  batch: 64\n  data:\n    path: d.csv\n    {line}\n")
}

#[test]
fn values_of_a_data_section_make_sense() {
    let check = |line: &str, expected: &str| check(&data_with(line), expected);
    let usual = "(the usual split is `[0.7, 0.2, 0.1]`)";
    check("split: folders", "ok");
    check(
        "split: folder",
        "7 train.data.split: expected a list or `folders`, found the text `folder` (did you mean `folders`?)",
    );
    check("split: [0.8, 0.1, 0.1]", "ok");
    check("split: [0.3333333, 0.3333333, 0.3333334]", "ok");
    check(
        "split: [0.8, 0.2]",
        "7 train.data.split: expected a list of 3 values, found 2 (write `split: [0.8, 0.1, 0.1]`, the shares of training, validation and test, or `split: folders`)",
    );
    check(
        "samples: 5",
        "7 train.data.samples: unknown key (this describes files that are not here yet: write `data: {samples: 50000, bytes: 5 GB}` beside `train:`)",
    );
    check("split: [0.8, 0.1, x]", "7 train.data.split[2]: expected a number, found the text `x`");
    check("split: [0.5, 0.2, 0.1]", &format!("7 train.data.split: the shares add up to 0.8, not to 1 {usual}"));
    check("split: [1.5, -0.5, 0]", &format!("7 train.data.split: a share is not between 0 and 1 {usual}"));
    check("split: [0, 0.5, 0.5]", &format!("7 train.data.split: no samples are left to train on {usual}"));
    check(
        "split: [0.8, 0.2, 0]",
        &format!("7 train.data.split: without test samples no test accuracy is reported {usual}\nok"),
    );
    check(
        "split: [0.8, 0, 0.2]",
        &format!("7 train.data.split: without validation samples the last model counts as the best {usual}\nok"),
    );
    check("augment: [flip, pad_crop: 4]", "ok");
    check(
        "augment: [{pad_crop: 0}]",
        "7 train.data.augment[0].pad_crop: `0` is out of range: it must be at least 1 and at most 256 (4 is usual for 32×32 images)",
    );
    check("augment: [flip, flip]", "7 train.data.augment[1]: the same change stands here twice (keep one of the two)");
    check("augment: [pad_crop]", "7 train.data.augment[0]: `pad_crop` needs a value (write `pad_crop: …`)");
    check(
        "augment: [rotate]",
        "7 train.data.augment[0]: `rotate` is not known here (write one of `random_resized_crop`, `flip`, `mosaic`, `trivial_augment`, `resize_crop`, `pad_crop`, `color_jitter`, `auto_augment`, `random_erasing`, `rand_augment`, `mixup`, `cutmix`)",
    );
    check(
        "augment: [crop: 4]",
        "7 train.data.augment[0].crop: unknown kind (write one of `random_resized_crop`, `flip`, `mosaic`, `trivial_augment`, `resize_crop`, `pad_crop`, `color_jitter`, `auto_augment`, `random_erasing`, `rand_augment`, `mixup`, `cutmix`)",
    );
    let unsized_part = "the size of the part is not known (set `size`, such as `size: 224`)";
    check("augment: [random_resized_crop]", &format!("7 train.data.augment[0]: {unsized_part}"));
    check(
        "augment: [flip, resize_crop: 256]",
        &format!(
            "7 train.data.augment[1]: cropping comes before other augmentations (move it to the front, once)\n7 train.data.augment[1]: {unsized_part}"
        ),
    );
    check("augment: flip", "7 train.data.augment: expected a list, found the text `flip` (write `augment: [flip]`)");
    check("augment: [flip, rand_augment: {num_ops: 2, magnitude: 9}, mixup: 0.2, cutmix: 1]", "ok");
    check("augment: [rand_augment: {}]", "ok");
    check(
        "augment: [color_jitter: {brightness: 0.4, hue: 0.1}, auto_augment: imagenet, random_erasing: {}, mixup: 0.2]",
        "ok",
    );
    check("augment: [trivial_augment, random_erasing: {p: 0.25}]", "ok");
    check(
        "augment: [color_jitter: {}]",
        "7 train.data.augment[0].color_jitter: nothing varies (write for example `color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}`)",
    );
    check(
        "augment: [color_jitter: {hue: 0.6}]",
        "7 train.data.augment[0].color_jitter.hue: `0.6` is out of range: it must be at most 0.5",
    );
    check(
        "augment: [color_jitter: {saturatoin: 0.4}]",
        "7 train.data.augment[0].color_jitter.saturatoin: unknown key (did you mean `saturation`?)",
    );
    check(
        "augment: [auto_augment: cifar]",
        "7 train.data.augment[0].auto_augment: `cifar` is not known here (write one of `imagenet`, `cifar10`, `svhn`)",
    );
    check(
        "augment: [random_erasing: {p: 2}]",
        "7 train.data.augment[0].random_erasing.p: `2` is out of range: it must be at most 1",
    );
    check(
        "augment: [random_erasing: {scale: [0.3, 0.02]}]",
        "7 train.data.augment[0].random_erasing.scale: `[0.3, 0.02]` are no smallest and largest area between 0 and 1 (`[0.02, 0.33]` is usual)",
    );
    check(
        "augment: [random_erasing: {ratio: [0, 3]}]",
        "7 train.data.augment[0].random_erasing.ratio: `[0, 3]` are no ratios between 0.05 and 20 (`[0.3, 3.3]` is usual)",
    );
    check(
        "augment: [random_erasing: {}, flip]",
        "7 train.data.augment[0]: a part of the finished image is erased, after all changes of it (move it behind the other augmentations; `mixup` and `cutmix` come last)",
    );
    check("sampling: balanced", "ok");
    check("sampling: balance", "7 train.data.sampling: `balance` is not known here (did you mean `balanced`?)");
    check(
        "augment: [rand_augment: {magnitude: 31}]",
        "7 train.data.augment[0].rand_augment.magnitude: `31` is out of range: it must be at most 30",
    );
    check(
        "augment: [mixup: 0]",
        "7 train.data.augment[0].mixup: `0` is out of range: it must be at least 0.01 and at most 100 (0.2 is usual for mixup, and 1 for cutmix)",
    );
    check(
        "augment: [mixup: 0.2, flip]",
        "7 train.data.augment[0]: images are mixed after all other augmentations (move it to the end of the list)",
    );
    check(
        "cache: {budget: 10 GiB}",
        "7 train.data.cache: the data lies on this machine already (leave the key out, or give an address such as `s3://BUCKET/PREFIX`)",
    );
    check("preload: 64 GiB", "ok");
    check(
        "preload: 1 KiB",
        "7 train.data.preload: `1 KiB` is too little for any images (write at least `1 MiB`, such as `64 GiB`)",
    );
    check("normalize: {mean: [0.5], std: [0.25]}", "ok");
    check(
        "normalize: {mean: [0.5], std: [0.2, 0.2]}",
        "7 train.data.normalize: 1 means and 2 standard deviations do not fit together (write one of each a channel)",
    );
    check(
        "normalize: {mean: [1, 1], std: [1, 1]}",
        "7 train.data.normalize: 2 channels are given; an image has 1 or 3 (write one mean and one deviation a channel)",
    );
    check(
        "normalize: {mean: [0], std: [0]}",
        "7 train.data.normalize.std: a standard deviation is above 0 (leave `normalize` out to have it measured)",
    );
    check("size: 4", "7 train.data.size: `4` is out of range: it must be at least 8");
    check("size: 2048", "7 train.data.size: `2048` is out of range: it must be at most 1024");
    check("classes: 1", "7 train.data.classes: `1` is out of range: it must be at least 2");
    check("corrupt: ignore", "7 train.data.corrupt: `ignore` is not known here (write one of `fail`, `skip`)");
    check("workers: many", "7 train.data.workers: expected a whole number, found the text `many`");
    check("path: e.csv", "7 path: the key stands here twice (keep one of the two)");
}

#[test]
fn texts_are_for_models_that_read() {
    let check = |model: &str, data: &str, expected: &str| {
        check(&format!("train:\n  model: {model}\n  data: {{path: d.csv{data}}}\n  epochs: 3\n  batch: 4\n"), expected);
    };
    check("bert_mini", ", text: {columns: [title, body], label: class}", "ok");
    check("bert_mini", ", text: {columns: [premise], pair: hypothesis, label: class}", "ok");
    let no_pair = "3 train.data.text.pair: pairs of texts are for text classification by BERT (name the classes with `label`, or leave the key out)";
    check("bert_mini", ", text: {columns: [premise], pair: hypothesis}", no_pair);
    check("gpt_tiny", ", text: {columns: [premise], pair: hypothesis, label: class}", no_pair);
    check("gpt_tiny", ", text: {length: 256, tokenizer: words.json}", "ok");
    check(
        "bert_mini",
        "",
        "3 train.data.text: `bert_mini` reads text, and where it stands in the data is not said (write for example `text: {columns: [text], label: label}`)",
    );
    check(
        "cnn",
        ", text: {}",
        "3 train.data.text: `cnn` reads images, not text (leave the key out, or choose a model that reads text)",
    );
    check(
        "gpt_tiny",
        ", text: {length: 257}, size: 32, split: folders",
        "3 train.data.text.length: sequences of 257 tokens are longer than the 256 positions of `gpt_tiny` (write at most 256)
         3 train.data.size: this key is for images, and the model reads text (leave the key out)
         3 train.data.split: a text file has no folders (write for example `split: [0.7, 0.2, 0.1]`)",
    );
    check("yolo_n", ", size: 128, augment: [flip, mosaic]", "ok");
    check(
        "yolo_n",
        ", size: 128, preload: 1 GiB",
        "3 train.data.preload: images for `yolo_n` are read when they are needed (leave the key out)",
    );
    check(
        "yolo_n",
        ", size: 100, augment: [pad_crop: 4]",
        "3 train.data.augment[0]: boxes cannot be cropped with their images yet (`flip` and `mosaic` can be used for detection)
         3 train.data.size: `yolo_n` looks through a grid of 32 pixels, which does not go up with 100 (write a multiple of 32, such as 96)",
    );
    check(
        "cnn",
        ", augment: [mosaic]",
        "3 train.data.augment[0]: `cnn` is no detector, and mosaics are for detection (leave it out, or choose a detector such as `yolo_n`)",
    );
}

#[test]
fn data_may_lie_elsewhere_and_folders_are_local() {
    check("train: {model: mlp, epochs: 1, batch: 1, data: {path: 's3://bucket/set'}}", "ok");
    let remote = "train: {model: mlp, epochs: 1, batch: 1, data: {path: 'ftp://host/set'}}";
    check(
        remote,
        "1 train.data.path: `ftp://` is not known (write a path, `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://` or `https://`)",
    );
    let empty = "train: {model: mlp, epochs: 1, batch: 1, data: {path: ''}}";
    check(empty, "1 train.data.path: the path is empty (write a path, relative to the job file)");
    check(&run_with("workdir: ."), "ok");
    check(&run_with("workdir: $HOME/code"), "2 workdir: variables in a path are not filled in (write the path out)");
    check(
        &run_with("workdir: {url: 'https://example.com/a.git', ref: main}"),
        "2 workdir: the repository is cloned by `setup` at the beginning of each attempt (the machine needs git and access to it)
         ok",
    );
    check(&run_with("workdir: [a]"), "2 workdir: expected text, found a list");
}
