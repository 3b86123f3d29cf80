#!/bin/bash
ARGS=(-m "/a b.gguf" --metrics)
ARGS+=(-np 2 # two
  -c 4096)
exec llama-server "${ARGS[@]}" --no-kv-unified
