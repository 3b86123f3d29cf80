#!/bin/bash
start() {
  case $1 in
    fast) llama-server -m /m.gguf -np 1 --metrics ;;
    *) echo "no" ;;
  esac
}
start fast
