#!/bin/bash
for p in 8081 8082; do
  llama-server -m /m.gguf -np 1 --metrics --port "$p"
done
