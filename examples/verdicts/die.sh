#!/bin/sh
# die.sh SIX CRASH SEED: the program under test. It throws a loaded die once.
#
# SIX is the chance of a six in percent; the rest is shared by one to five.
# CRASH is the chance in percent that it dies and prints nothing. The seed
# decides everything, so the same line gives the same reply in every POSIX sh
# whose arithmetic has 64 bits.
set -eu
six=$1 crash=$2 seed=$3

# A 32-bit integer hash: seeds that follow each other must not give numbers
# that do. (awk's srand differs from awk to awk; a bare Lehmer step maps 1, 2,
# 3, … to evenly spaced numbers, which is no chance at all.)
mix() {
    x=$(( ($1 + 0x9e3779b9) & 0xffffffff ))
    for _ in 1 2; do
        x=$(( ((x >> 16) ^ x) * 0x45d9f3b & 0xffffffff ))
    done
    echo $(( (x >> 16) ^ x ))
}

if [ $(( $(mix "$seed") % 100 )) -lt "$crash" ]; then
    exit 1
fi
if [ $(( $(mix $((seed + 1000000))) % 100 )) -lt "$six" ]; then
    face=6
else
    face=$(( $(mix $((seed + 2000000))) % 5 + 1 ))
fi
echo "I threw the die once."
echo "It shows $face."
