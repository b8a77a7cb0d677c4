"""Takes what a CPU needs out of the pinned wheels: `python3 extract.py VERSION TARGET (WHEEL SHA256)...`.

Exit code 3: a wheel has another hash than the pinned one. Exit code 4: a wheel holds another version of PyTorch.
"""

import hashlib
import os
import re
import shutil
import sys
import zipfile

LIBRARIES = {
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libtorch.so",
    "torch/lib/libc10.so",
    "torch/lib/libgomp.so.1",
    "nvidia/cu13/lib/libcudart.so.13",
    "nvidia/cu13/lib/libcupti.so.13",
}


def place(name):
    """Where a member of a wheel goes below the target, or None if it is not needed."""
    if name in LIBRARIES:
        return "lib/" + os.path.basename(name)
    if name.startswith("torch/include/"):
        return name[len("torch/") :]
    licence = re.match(r"([a-z_]+)-[^/]*\.dist-info/licenses/(LICENSE|NOTICE|License\.txt)$", name)
    if licence:
        return "licenses/{}-{}".format(licence.group(1), licence.group(2))
    return None


def digest(path):
    whole = hashlib.sha256()
    with open(path, "rb") as wheel:
        for block in iter(lambda: wheel.read(1 << 20), b""):
            whole.update(block)
    return whole.hexdigest()


def extract(wheel, target):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = place(member.filename)
            if name is None or member.is_dir():
                continue
            path = os.path.join(target, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
        if "torch/version.py" in archive.namelist():
            return re.search(r"__version__ = '([^']+)'", archive.read("torch/version.py").decode()).group(1)
    return None


def main(version, target, *pins):
    found = None
    for wheel, pinned in zip(pins[::2], pins[1::2]):
        measured = digest(wheel)
        if measured != pinned:
            sys.stderr.write("`{}` has SHA-256 {}, the pinned one is {}".format(os.path.basename(wheel), measured, pinned))
            return 3
        found = extract(wheel, target) or found
    if found is None or found.split("+")[0] != version:
        sys.stderr.write("the wheels hold PyTorch `{}`, not `{}`".format(found, version))
        return 4
    with open(os.path.join(target, "build-version"), "w") as file:
        file.write(found + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
