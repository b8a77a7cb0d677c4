"""Lists, reads and decodes the samples of `gradus.SampleLoader`."""
import collections
import concurrent.futures
import hashlib
import os
import tarfile

from .. import _door
from .parameters import parameters

# Batches whose samples are read and decoded before they are asked for.
AHEAD = 2


class Samples:
    """Reads and decodes samples ahead in threads; `_door.Loader` for them."""

    classes = []

    def __init__(self, found, decode, shares, seed, shuffle, workers, grouped):
        self._found, self._decode, self._shares, self._grouped = found, decode, shares, grouped
        self._seed, self.trains, self.samples = seed, bool(shuffle), len(found)
        self._takes = parameters(decode)
        self._files = Files()
        self._threads = concurrent.futures.ThreadPoolExecutor(workers, "gradus-samples")
        self._at, self._ahead, self._identity = (0, 0), collections.deque(), None
        # Refuses a rank that there is not, and a batch of nothing.
        self._planned(0, 0)

    @property
    def identity(self):
        """A hash of the names and sizes of all samples."""
        if self._identity is None:
            digest = hashlib.sha256()
            for name, members in self._found:
                lengths = [f"{extension} {length}" for extension, _, _, length in members]
                digest.update(f"{name}\0{', '.join(lengths)}\n".encode("utf-8", "surrogateescape"))
            self._identity = digest.hexdigest()
        return self._identity

    def next(self):
        while len(self._ahead) < AHEAD and self._at is not None:
            epoch, pos = self._at
            chosen, first, *after = self._planned(epoch, pos)
            work = [self._threads.submit(self._sample, sample, epoch, first + at) for at, sample in enumerate(chosen)]
            self._ahead.append((work, *after))
            self._at = None if not self.trains and after[1] == 0 else tuple(after)
        if not self._ahead:
            return None
        work, epoch, pos = self._ahead[0]
        made = [sample.result() for sample in work]
        self._ahead.popleft()
        return made, epoch, pos

    def go_to(self, epoch, pos):
        if pos > 0 and pos >= self.samples:
            raise ValueError(f"sample {pos} is not among the {self.samples} of this data set")
        for work, *_ in self._ahead:
            for sample in work:
                sample.cancel()
        self._ahead.clear()
        self._at = (epoch, pos)

    def _planned(self, epoch, pos):
        batch, rank, world = self._shares
        return _door.planned(self.samples, self._seed if self.trains else None, epoch, pos, batch, rank, world)

    def _sample(self, sample, epoch, position):
        name, members = self._found[sample]
        try:
            read = {extension: self._files.read(path, start, length) for extension, path, start, length in members}
        except OSError as error:
            raise RuntimeError(f"cannot read the sample `{name}`: {error}") from error
        given = {}
        if "name" in self._takes:
            given["name"] = name
        if "rng" in self._takes:
            import numpy

            given["rng"] = numpy.random.default_rng([self._seed, epoch, position])
        try:
            return self._decode(read if self._grouped else next(iter(read.values())), **given)
        except Exception as error:
            raise RuntimeError(f"`decode` failed for the sample `{name}`: {type(error).__name__}: {error}") from error


class Files:
    """Bytes of files. Tars stay open."""

    def __init__(self):
        self._open = {}

    def read(self, path, start, length):
        if start is None:
            with open(path, "rb") as file:
                return file.read()
        file = self._open.get(path)
        if file is None:
            # Where two threads open it, the file of one is closed with its object.
            file = self._open.setdefault(path, open(path, "rb"))
        found = os.pread(file.fileno(), length, start)
        if len(found) != length:
            raise OSError(f"`{path}` is shorter than when it was listed")
        return found


def listed(path, grouped):
    """The samples at a path in the order of their names: each with its name and members, which are an extension, a file,
    and where in the file and how long it is.
    """
    is_folder = os.path.isdir(path)
    files, root = (below(path), path) if is_folder else ([path], os.path.dirname(path))
    found = {}
    for file in files:
        for name, start, length in members(file, os.path.relpath(file, root)):
            folder, base = os.path.split(name)
            if base.startswith("."):
                continue
            stem, _, extension = base.partition(".")
            key = os.path.join(folder, stem) if grouped else name
            found.setdefault(key, []).append((extension, file, start, length))
    return sorted(found.items())


def below(root):
    """The files below a folder. Links are followed, but not in circles."""
    found, seen = [], set()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        found.extend(os.path.join(folder, name) for name in names)
    return sorted(found)


def members(file, name):
    """Names, places and lengths of what a file holds: the members of a tar, or the file itself."""
    if not name.endswith(".tar"):
        if name.endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")):
            raise RuntimeError(f"`{file}` is compressed, so its members cannot be read one by one\nhint: unpack it to a .tar")
        return [(name, None, os.path.getsize(file))]
    try:
        with tarfile.open(file, "r:") as tar:
            inside = [member for member in tar if member.isreg() and not member.issparse()]
            return [(f"{name}/{member.name}", member.offset_data, member.size) for member in inside]
    except tarfile.TarError as error:
        raise RuntimeError(f"`{file}` is no tar that can be read: {error}") from error
