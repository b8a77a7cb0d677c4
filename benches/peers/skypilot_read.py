"""What SkyPilot's parser reads in task files: `skypilot_read.py FILE…` prints a JSON object, a task a file.

Nothing is asked of a cloud. A file that SkyPilot refuses has the one key `refused`.
"""

import json
import os
import sys
import tempfile

home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # pylint: disable=consider-using-with
os.environ["HOME"] = home.name
os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"

import sky  # noqa: E402

# What SkyPilot looks up in its catalog, which it downloads: whether a place, a type or a GPU is offered.
for lookup in [
    "_try_canonicalize_accelerators",
    "_try_validate_and_set_region_zone",
    "_try_validate_instance_type",
    "_try_validate_cpus_mem",
]:
    getattr(sky.Resources, lookup)
    setattr(sky.Resources, lookup, lambda self: None)


def resources(one):
    """One set of resources, as plain values."""
    images = set((one.image_id or {}).values())
    return {
        "cloud": str(one.cloud).lower() if one.cloud else None,
        "region": one.region,
        "zone": one.zone,
        "instance_type": one.instance_type,
        # What an instance type has stands in the catalog.
        "accelerators": {} if one.instance_type else one.accelerators or {},
        "cpus": None if one.instance_type else one.cpus,
        "memory": None if one.instance_type else one.memory,
        "disk_size": one.disk_size,
        "use_spot": one.use_spot if one.use_spot_specified else None,
        "image": images.pop() if images else None,
        "recovery": one.job_recovery or {},
    }


def mounts(task):
    """What is copied or mounted where: an address or a path, and whether it is a copy."""
    plain = {target: [source, "COPY"] for target, source in (task.file_mounts or {}).items()}
    stores = task.storage_mounts or {}
    return plain | {target: [store.source, store.mode.value] for target, store in stores.items()}


def task(path):
    """The task of a file."""
    one = sky.Task.from_yaml(path)
    return {
        "name": one.name,
        "num_nodes": one.num_nodes,
        "workdir": one.workdir,
        "setup": one.setup,
        "run": one.run,
        "envs": one.envs,
        "secrets": {name: secret.get_secret_value() for name, secret in one.secrets.items()},
        "file_mounts": mounts(one),
        "resources": [resources(each) for each in one.resources],
    }


def task_or_refusal(path):
    """The task of a file, or why there is none."""
    try:
        return task(path)
    except Exception as error:  # pylint: disable=broad-except
        return {"refused": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}


# SkyPilot says things on stdout.
print("\n" + json.dumps({os.path.basename(path): task_or_refusal(path) for path in sys.argv[1:]}))
