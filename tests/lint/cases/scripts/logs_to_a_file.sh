#!/bin/bash
llama-server -m /m.gguf -np 1 --metrics >out.log 2>&1 &
wait
