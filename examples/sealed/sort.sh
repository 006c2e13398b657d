#!/bin/sh
# sort.sh IN OUT: the rows by team, then by minutes, without the header.
set -eu
# No pipe: what fails at the head of one goes unnoticed.
tail -n +2 "$1" > "$TMPDIR/rows"
LC_ALL=C sort -t, -k2,2 -k3,3n -k1,1n "$TMPDIR/rows" > "$2"
