#!/bin/bash
EXTRA="--alias 'my model' -np 1"
exec llama-server -m /m.gguf $EXTRA --metrics
