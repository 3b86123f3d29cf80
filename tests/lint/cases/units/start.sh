#!/bin/bash
set -euo pipefail
exec /opt/llama/bin/llama-server -m "$MODEL" -c 8192 -np 2 \
  --no-kv-unified --metrics --slots 2
