#!/bin/bash
exec llama-server -m /m.gguf -c 8192 -np 2 --no-kv-unified --metrics
