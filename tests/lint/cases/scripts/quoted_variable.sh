#!/bin/bash
EXTRA="-np 1 --metrics"
exec llama-server -m /m.gguf "$EXTRA"
