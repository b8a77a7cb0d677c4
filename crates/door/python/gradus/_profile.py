"""Steps that are timed for `gradus plan JOB --profile N`."""
import json
import os
import resource
import sys
import time


# Seconds between two notes of the newest step.
PAUSE = 1.0


class Profile:
    """Notes when each of the first steps was logged, writes that down, and ends the process."""

    def __init__(self, steps, path, total):
        self.path, self.steps, self.is_written, self.noted = path, steps, False, None
        self.found = {"steps": [], "total": total, "samples": 0, "parameters": 0}

    @staticmethod
    def asked(environment, rank, total):
        """The profile that is asked for, on rank 0."""
        steps, path = environment.get("GRADUS_PROFILE"), environment.get("GRADUS_PROFILE_TO")
        return Profile(int(steps), path, total) if steps and path and rank == 0 else None

    def logged(self, step, samples):
        """A step is done; from the last one that is wanted, this does not return."""
        times = self.found["steps"]
        if times and step <= times[-1][0]:
            return
        self.note(step)
        times.append((step, time.time()))
        if samples:
            self.found["samples"] = samples
        if len(times) > self.steps:
            self.write()
            raise SystemExit(0)

    def note(self, step):
        """Writes down which step was logged last, at most once a second: a program that logs none for long is ended."""
        now = time.monotonic()
        if self.noted is not None and now < self.noted + PAUSE:
            return
        self.noted = now
        with open(self.path + ".first", "w", encoding="utf-8") as file:
            file.write(str(step))

    def saw(self, objects):
        """Counts the parameters of modules."""
        modules = [value for value in (objects or {}).values() if callable(getattr(value, "parameters", None))]
        tensors = {id(tensor): tensor.numel() for module in modules for tensor in module.parameters()}
        self.found["parameters"] = max(self.found["parameters"], sum(tensors.values()))

    def write(self):
        """Writes what was timed, once."""
        if self.is_written:
            return
        self.is_written = True
        torch = sys.modules.get("torch")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Linux counts kilobytes, macOS bytes.
        found = {**self.found, "memory": memory * (1 if sys.platform == "darwin" else 1024), "gpu_memory": 0, "device": "cpu"}
        # Set before the interpreter ends for an exception that nothing has caught.
        found["failed"] = getattr(sys, "last_value", None) is not None
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            found["gpu_memory"] = torch.cuda.max_memory_reserved()
            found["device"] = torch.cuda.get_device_name()
        draft = self.path + ".draft"
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(draft, self.path)
