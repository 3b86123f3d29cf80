#!/bin/bash
set -a
LLAMA_ARG_CTX_SIZE=8192
LLAMA_ARG_N_PARALLEL=1
set +a
llama-server -m /m.gguf --metrics
