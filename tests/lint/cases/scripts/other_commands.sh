#!/bin/bash
systemctl status llama-server || true
echo "llama-server --slots 1"
grep -c "x" /etc/hostname >/dev/null
pgrep llama-server
true
