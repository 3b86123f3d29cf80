#!/bin/bash
llama-server \
  -m /m.gguf \
  -np 1 \
  --metrics
