#!/usr/bin/env bash
# Serve the small model on loopback: serve.sh NAME PORT CORES [FOLDER], e.g. serve.sh edge 8101 0-1. Further options for vLLM in VLLM_ARGS.
# Spans go to OTEL_EXPORTER_OTLP_TRACES_ENDPOINT when set (OTLP/gRPC unless OTEL_EXPORTER_OTLP_TRACES_PROTOCOL says http/protobuf).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=${1:?NAME} port=${2:?PORT} cores=${3:?CORES}
folder=$(cd "${4:-"$here/../../.vllm"}" && pwd)
preload=$(ls /usr/lib/*/libtcmalloc_minimal.so.4 2>/dev/null | head -1 || true)
for lib in "$folder"/lib/libiomp5.so; do [ -e "$lib" ] && preload="${preload:+$preload:}$lib"; done
traces=()
[ -n "${OTEL_EXPORTER_OTLP_TRACES_ENDPOINT:-}" ] && traces=(--otlp-traces-endpoint "$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
# The engine's cache size comes from --kv-cache-memory-bytes; VLLM_CPU_KVCACHE_SPACE would override it.
unset VLLM_CPU_KVCACHE_SPACE
export LD_PRELOAD="$preload" HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_HOST_IP=127.0.0.1 GLOO_SOCKET_IFNAME=lo
export VLLM_CPU_OMP_THREADS_BIND="$cores" OTEL_SERVICE_NAME="vllm-$name"
exec "$folder/bin/python" -m vllm.entrypoints.launchers.api_server.entry --model "$folder/model" \
  --served-model-name "${VLLM_MODEL_NAME:-smollm2}" --host 127.0.0.1 --port "$port" --max-model-len 2048 --max-num-seqs 16 \
  --enforce-eager --block-size 32 --kv-cache-memory-bytes 64M --enable-prompt-tokens-details \
  "${traces[@]}" ${VLLM_ARGS:-}
