#!/bin/bash
# escape.sh REPORT: tries to get out, and writes what it got.
#
# Everything here is harmless where it succeeds: files are opened and not
# written to, the datagram socket sends nothing. Outcomes are words of our own,
# so that the report is the same on every machine, whatever its kernel says.
# Bash, since it can open a socket by itself.
set -u
me=$0 report=$1
got=0

say() { printf '%-46s %s\n' "$1" "$2" >> "$report"; }
part() { printf '%s%s\n' "${nl-}" "$1" >> "$report"; nl=$'\n'; }
reached() { got=$((got + 1)); say "$1" "GOT IT"; }

# read_it WHAT PATH: a file is read, a folder is listed.
read_it() {
    if [[ ! -e $2 && ! -L $2 ]]; then
        say "$1" "not there"
    elif [[ -d $2 ]] && ls "$2" > /dev/null 2>&1 || head -c 1 "$2" > /dev/null 2>&1; then
        reached "$1"
    else
        say "$1" "refused"
    fi
}

# try WHAT COMMAND…: refused, unless the command succeeds.
try() {
    local what=$1
    shift
    if "$@" > /dev/null 2>&1; then reached "$what"; else say "$what" "refused"; fi
}

append() { : >> "$1"; } # opens for writing, and writes nothing
udp() { exec 3<> "/dev/udp/$1/9" && exec 3>&-; } # connecting sends nothing

part "Who and where it is"
say "user and group" "$(id -u) $(id -g)"
say "host" "$(uname -n)"
say "working directory" "$PWD"
say "umask" "$(umask)"
say "time zone" "$(date +%Z)"
while IFS= read -r -d '' variable; do say "${variable%%=*}" "${variable#*=}"; done < /proc/$$/environ
say "/dev" "$(echo $(ls /dev))"
tmp=$(ls /tmp)
say "/tmp" "${tmp:-empty}"
say "inputs" "$(cd /in && ls -d */*/*)"

part "Files of the machine"
read_it "password hashes, /etc/shadow" /etc/shadow
read_it "home of root, /root" /root
read_it "homes of users, /home" /home
read_it "what runs, /run" /run
read_it "logs and caches, /var" /var
read_it "devices and more, /sys" /sys
read_it "the machine's id, /etc/machine-id" /etc/machine-id
read_it "kernel settings, /proc/sys" /proc/sys
read_it "network tables, /proc/net" /proc/net/dev
read_it "Docker's socket" /var/run/docker.sock
read_it "a disk, /dev/sda" /dev/sda
read_it "the kernel's log, /dev/kmsg" /dev/kmsg

part "The rest of the workspace"
read_it "the input of another action" "${me%/*}/tickets.csv"
read_it "the output of another action" "${me%/*}/table"
read_it "another example" "${me%/*/*}/recorded/question.md"
read_it "MODULE.star" "${me%/*/*/*}/MODULE.star"
read_it "eval-out" "${me%/*/*/*}/eval-out"

part "Other processes"
read_it "environment of PID 1" /proc/1/environ
read_it "descriptors of PID 1" /proc/1/fd
read_it "root of PID 1" /proc/1/root
read_it "memory of PID 1" /proc/1/mem
read_it "what is in a descriptor, 9" /proc/self/fd/9

part "Changes"
try "write to its own script" append "$me"
try "make a file in /in" append /in/made-by-escape
try "write to /etc/passwd" append /etc/passwd
try "write to /bin/bash" append /bin/bash
try "hard link to its script" ln "$me" stolen
try "make a device" mknod "$TMPDIR/null" c 1 3
try "change the root" chroot / true
try "raise a limit" eval 'ulimit -n 1000000'

part "Network"
try "a route to 192.0.2.1" udp 192.0.2.1
try "find the address of a name" udp example.com

part "It got: $got"
