#!/bin/bash
exec env A=1 nice -n 1 llama-server -m /m.gguf -np 1 --metrics
