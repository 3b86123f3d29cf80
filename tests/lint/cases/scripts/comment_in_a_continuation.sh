#!/bin/bash
llama-server -m /m.gguf \
  -np 1 \
  # -c 4096 \
  --metrics
