#!/bin/sh
# record.sh: how the replies in this folder were made. Nothing runs it in a
# build; the committed replies are the evidence. Run it again and see that
# `git status` stays clean:
#
#     sh examples/verdicts/record.sh
#
# Each series is two dice thrown by die.sh, N reps an arm, seeds FIRST+1 … for
# control and FIRST+101 … for treatment. A reply is what the program wrote on
# stdout, also when it died.
set -eu
cd "$(dirname "$0")"

arm() { # SERIES ARM REPS SEED SIX CRASH
    mkdir -p "$1"
    n=1
    while [ "$n" -le "$3" ]; do
        sh ./die.sh "$5" "$6" $(($4 + n)) > "$1/$2-$n.txt" || true
        n=$((n + 1))
    done
}

series() { # SERIES REPS FIRST CONTROL_SIX TREATMENT_SIX TREATMENT_CRASH
    arm "$1" control "$2" "$3" "$4" 0
    arm "$1" treatment "$2" $(($3 + 100)) "$5" "$6"
}

#      series       reps first  true chance of a six, crash (percent)
series missed       12   1000   20 80 0
series increased    12   3000   20 80 0
series undetermined 6    4000   50 75 0
series equivalent   11   5000   17 80 0
series fragile      10   6000   20 80 30

# What the discriminators are proved on: throws that no probe counts.
sh ./die.sh 100 0 1 > examples/six.txt
sh ./die.sh 0 0 1 > examples/other.txt
