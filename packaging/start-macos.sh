#!/bin/sh
# Starts the program beside this file, without a terminal, and ends: so every double click starts it, and the second one finds the first.
cd "$(dirname "$0")/bin" || exit 1
nohup ./ouzel </dev/null >/dev/null 2>&1 &
