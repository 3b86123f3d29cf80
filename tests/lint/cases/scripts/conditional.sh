#!/bin/bash
ARGS="-m /m.gguf -np 1 --metrics"
if [ -n "$DEBUG" ]; then
  ARGS="$ARGS -v"
fi
exec llama-server $ARGS
