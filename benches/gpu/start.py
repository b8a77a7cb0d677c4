"""Whether the executables of the pack start here."""

from suite import FOLDER, GRADUS, RANK, attempt, case, run


def start(name, *words):
    # Who talks to stderr alone has started too.
    case(name, True, next(iter(run(*words).splitlines()), ""))


attempt("gradus", start, "gradus", GRADUS, "--version")
attempt("gradus-rank", start, "gradus-rank", RANK, "--version")
attempt("xtask", start, "xtask", str(FOLDER / "bin/xtask"), "gpu", "sections")
