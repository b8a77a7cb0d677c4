"""Whether the executables of the pack start here."""

from suite import FOLDER, GRADUS, RANK, attempt, case, run


def start(name, *words):
    case(name, True, run(*words).strip().splitlines()[0])


attempt("gradus", start, "gradus", GRADUS, "--version")
attempt("gradus-rank", start, "gradus-rank", RANK, "--version")
attempt("xtask", start, "xtask", str(FOLDER / "bin/xtask"), "gpu", "sections")
