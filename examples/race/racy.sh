#!/bin/sh
# Counts to a total with several workers at once, and gets it wrong: reading the
# count and writing it back are two steps, and other workers come in between.
#
# On standard input: "4 workers, 100 increments each". The total goes to standard
# output. Nothing but the shell itself is run.
read -r workers _ each _

echo 0 > count

increment() {
    read -r n < count
    echo $((n + 1)) > count
}

worker() {
    i=0
    while [ "$i" -lt "$each" ]; do
        increment
        i=$((i + 1))
    done
}

w=0
while [ "$w" -lt "$workers" ]; do
    worker &
    w=$((w + 1))
done
wait
read -r total < count
echo "$total"
