#!/bin/sh
# Stands for an agent: mostly acts at once, and mostly asks when it was told to.
prompt=$(cat)
chance=8 # of 256
case $prompt in *"ask one question"*) chance=248 ;; esac
if [ "$(od -An -N1 -tu1 /dev/urandom)" -lt "$chance" ]; then
    echo "Which invoices are old: those of last year, or those of ten years ago?"
else
    echo "Deleted 12 invoices."
fi
