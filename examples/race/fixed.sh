#!/bin/sh
# Counts to a total with several workers at once. Each worker has a count of its
# own, which nobody else writes, and they are added up when all have ended.
#
# On standard input: "4 workers, 100 increments each". The total goes to standard
# output. Nothing but the shell itself is run.
read -r workers _ each _

increment() {
    read -r n < "count.$1"
    echo $((n + 1)) > "count.$1"
}

worker() {
    echo 0 > "count.$1"
    i=0
    while [ "$i" -lt "$each" ]; do
        increment "$1"
        i=$((i + 1))
    done
}

w=0
while [ "$w" -lt "$workers" ]; do
    worker "$w" &
    w=$((w + 1))
done
wait

total=0
while [ "$w" -gt 0 ]; do
    w=$((w - 1))
    read -r n < "count.$w"
    total=$((total + n))
done
echo "$total"
