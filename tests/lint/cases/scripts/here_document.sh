#!/bin/bash
cat >/dev/null <<EOF
llama-server --slots 1
EOF
llama-server -m /m.gguf -np 1 --metrics 2>&1 | cat
