"""Starts scripts in forked children, so that PyTorch is imported once for hundreds of processes.

Each line of the input is a JSON object: `script`, `arguments`, `environment`, and `out`, a named pipe for the output. The
answer is the child's process id. A child ends with the line `exit CODE`; one that was killed, without it.
"""
import atexit
import json
import os
import runpy
import signal
import sys
import traceback

import gradus  # noqa: F401
import torch  # noqa: F401
import torch.distributed  # noqa: F401


def child(request):
    out = os.open(request["out"], os.O_WRONLY)
    os.dup2(out, 1)
    if os.environ.get("GRADUS_SHOW_ERRORS") is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    os.close(out)
    os.environ.update(request["environment"])
    sys.argv = [request["script"], *request["arguments"]]
    code = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os.write(1, f"exit {code}\n".encode())
    os._exit(code)


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        number = os.fork()
        if number == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child(request)
        print(number, flush=True)


if __name__ == "__main__":
    main()
