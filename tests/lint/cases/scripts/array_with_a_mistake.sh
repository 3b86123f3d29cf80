#!/bin/bash
ARGS=(
  -m /m.gguf
  --slots 2
  --metrics
)
exec llama-server "${ARGS[@]}" -c 4096
