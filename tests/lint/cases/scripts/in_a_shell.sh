#!/bin/bash
sh -c "exec llama-server -m /m.gguf -np 1 --metrics --slots 1"
