"""Writes what `transformers` takes for the figures that a `config.json` leaves out.

    defaults.py KEY... > crates/plan/src/model/read/config/defaults.tsv

A line for each type: its name, then `key=value` for those of the keys whose usual value is a whole number from 1 or a yes
(1) or no (0). The keys are those that the reader of `config.json` asks for; `cargo xtask bench models` says nothing of
types that are not read, and neither does this.
"""

import dataclasses
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

keys = sys.argv[1:]
print(f"# Usual figures of types of networks, by transformers {transformers.__version__} (`benches/peers/defaults.py`).")
for kind in sorted(CONFIG_MAPPING.keys()):
    # What the class itself names; other figures follow from those of the file.
    usual = {field.name: field.default for field in dataclasses.fields(CONFIG_MAPPING[kind])}
    figures = []
    for key in keys:
        value = usual.get(key)
        if isinstance(value, bool) or isinstance(value, int) and 0 < value < 1 << 24:
            figures.append(f"{key}={int(value)}")
    if figures:
        print("\t".join([kind] + figures))
