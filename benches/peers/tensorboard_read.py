"""Prints the scalars that TensorBoard itself reads from a folder of event files: {tag: [[wall_time, step, value]]}."""

import json
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
accumulator.Reload()
tags = accumulator.Tags()["scalars"]
print(json.dumps({tag: [[e.wall_time, e.step, e.value] for e in accumulator.Scalars(tag)] for tag in tags}))
