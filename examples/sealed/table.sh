#!/bin/sh
# table.sh SORTED TABLE FOLDER: a line a team, and each team's rows as a file of FOLDER.
set -eu
sorted=$1 table=$2 folder=$3
mkdir "$folder"
cut -d, -f2 "$sorted" > "$TMPDIR/column"
uniq "$TMPDIR/column" > "$TMPDIR/teams"

printf '%-10s %7s %7s %7s\n' team tickets minutes longest > "$table"
while read -r team; do
    tickets=0 minutes=0 longest=0
    while IFS=, read -r id of took; do
        [ "$of" = "$team" ] || continue
        tickets=$((tickets + 1)) minutes=$((minutes + took)) longest=$took # sorted by minutes
        echo "$id,$took" >> "$folder/$team.csv"
    done < "$sorted"
    printf '%-10s %7d %7d %7d\n' "$team" "$tickets" "$minutes" "$longest" >> "$table"
done < "$TMPDIR/teams"
