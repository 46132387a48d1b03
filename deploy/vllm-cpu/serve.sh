#!/usr/bin/env bash
# Serve the small model on loopback: serve.sh NAME PORT CORES [FOLDER [words for vLLM]], e.g. serve.sh edge 8101 0-1 .vllm --max-model-len 8192
# Spans go to OTEL_EXPORTER_OTLP_TRACES_ENDPOINT when set (OTLP/gRPC unless OTEL_EXPORTER_OTLP_TRACES_PROTOCOL says http/protobuf).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=${1:?NAME} port=${2:?PORT} cores=${3:?CORES}
folder=$(cd "${4:-"$here/../../.vllm"}" && pwd)
shift $(($# < 4 ? $# : 4))
preload=$(ls /usr/lib/*/libtcmalloc_minimal.so.4 2>/dev/null | head -1 || true)
for lib in "$folder"/lib/libiomp5.so; do [ -e "$lib" ] && preload="${preload:+$preload:}$lib"; done
traces=()
[ -n "${OTEL_EXPORTER_OTLP_TRACES_ENDPOINT:-}" ] && traces=(--otlp-traces-endpoint "$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
# Without bfloat16 instructions every product is emulated (a prompt took 7 times as long); float32 only takes twice the memory.
dtype=bfloat16
grep -qwE 'avx512_bf16|amx_bf16' /proc/cpuinfo || dtype=float32
# The engine's cache size comes from --kv-cache-memory-bytes; VLLM_CPU_KVCACHE_SPACE would override it.
unset VLLM_CPU_KVCACHE_SPACE
export LD_PRELOAD="$preload" HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_HOST_IP=127.0.0.1 GLOO_SOCKET_IFNAME=lo
export VLLM_CPU_OMP_THREADS_BIND="$cores" OTEL_SERVICE_NAME="vllm-$name"
exec "$folder/bin/python" -m vllm.entrypoints.launchers.api_server.entry --model "$folder/${VLLM_MODEL_FOLDER:-model}" --dtype "$dtype" \
  --served-model-name "${VLLM_MODEL_NAME:-smollm2}" --host 127.0.0.1 --port "$port" --max-model-len 2048 --max-num-seqs 16 \
  --enforce-eager --block-size 32 --kv-cache-memory-bytes 64M --enable-prompt-tokens-details \
  --enable-per-request-metrics "${traces[@]}" "$@"
