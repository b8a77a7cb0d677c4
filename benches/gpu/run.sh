#!/bin/sh
# Works through the suite on a machine with PyTorch: bash run.sh --out FOLDER [--limit SECONDS] [--sections A,B]
# A second call with the same FOLDER goes on with what is left.
here=$(cd "$(dirname "$0")" && pwd)
chmod +x "$here"/bin/* 2>/dev/null
exec "$here/bin/xtask" gpu run "$here" "$@"
