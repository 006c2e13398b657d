package escape

// Outputs: what isn't an honest file or folder isn't taken. Controls show that
// the attempt made what it was to make.
var outputRows = []row{
	{item: 68, name: "link in place of the output", in: shell, outs: []string{"o"}, try: `ln -s "$SECRET_FILE" o; reads o`, fails: `output "o" was rejected: link`, control: both("ok")},
	{item: 68, name: "link in place of its folder", in: shell, outs: []string{"sub/o"}, try: `rmdir sub 2>/dev/null; ln -s "$HOST_DIR" sub; reads sub/secret`, fails: `was rejected: link`, control: both("ok")},
	{item: 68, name: "link out of a folder", in: shell, outs: []string{"d/"}, try: `mkdir -p d; ln -s "$SECRET_FILE" d/l; reads d/l`, fails: `was rejected: escapes`, control: both("ok")},
	{item: 68, name: "relative link out of a folder", in: shell, outs: []string{"d/"}, try: `mkdir -p d; ln -s ../../../../../../../../../..$SECRET_FILE d/l; reads d/l`, fails: `was rejected: escapes`, control: both("ok")},
	{item: 69, name: "pipe", in: shell, outs: []string{"o"}, try: `mkfifo o; has -p o`, fails: `output "o" was rejected: type`, control: both("ok")},
	{item: 69, name: "socket", in: python, outs: []string{"o"}, try: `t(socket.socket(socket.AF_UNIX).bind, "o")`, fails: `output "o" was rejected: type`, control: both("ok")},
	{item: 69, name: "folder for a file", in: shell, outs: []string{"o"}, try: `mkdir o; has -d o`, fails: `output "o" was rejected: type`, control: both("ok")},
	{item: 69, name: "file for a folder", in: shell, outs: []string{"d/"}, try: `rmdir d 2>/dev/null; : > d; has -f d`, fails: `was rejected: type`, control: both("ok")},
	{item: 69, name: "folder that can't be read", in: shell, outs: []string{"d/"}, try: `mkdir -p d/x; chmod 0 d/x; stat -c %a d/x`, fails: `was rejected: unreadable`, control: both("0")},
	{item: 69, name: "file that can't be read", in: shell, outs: []string{"o"}, try: `: > o; chmod 0 o; stat -c %a o`, fails: `was rejected: unreadable`, control: both("0")},
	{item: 69, name: "loop", in: shell, outs: []string{"d/"}, try: `mkdir -p d/e; ln -s .. d/e/up; has -d d/e/up/e/up/e`, fails: `was rejected: loop`, control: both("ok")},
	{item: 70, name: "sparse", in: native, outs: []string{"o"}, try: "sparse 100000000 o", fails: `output "o" was rejected: bytes`, control: both("ok")},
	{item: 70, name: "100,001 files", in: native, outs: []string{"d/"}, try: "many 100001 d", fails: `was rejected: entries`, control: none("on a disk it takes longer than all else here")},
	{item: 70, name: "deep", in: native, outs: []string{"d/"}, try: "deep 70 d", fails: `was rejected: depth`, control: both("ok")},
	{item: 70, name: "newline in a name", in: shell, outs: []string{"d/"}, try: "mkdir -p d; : > \"d/$(printf 'a\\nb')\"; ls d | wc -l", fails: `was rejected: name`, control: both("2")},
	{item: 70, name: "escape code in a name", in: shell, outs: []string{"d/"}, try: "mkdir -p d; : > \"d/$(printf '\\033[31mred')\"; ls d | wc -l", fails: `was rejected: name`, control: both("1")},
	{item: 70, name: "no UTF-8 in a name", in: shell, outs: []string{"d/"}, try: "mkdir -p d; : > \"d/$(printf '\\377')\"; ls d | wc -l", fails: `was rejected: name`, control: both("1")},
	{item: 70, name: "name of 255 bytes", in: shell, outs: []string{"d/"}, try: "mkdir -p d; : > \"d/$(printf '%0255d' 0)\"; ls d | wc -l", want: "1", control: both("1")}, // honest
	{item: 72, name: "set-id bit", in: shell, outs: []string{"o"}, try: `: > o; chmod 6755 o; touch -d 1999-01-01 o; stat -c %a o`, want: "6755", control: both("6755")},   // TestEscape looks at what was kept
	{item: 73, name: "names that differ in case", in: shell, outs: []string{"d/"}, try: `mkdir -p d; : > d/a; : > d/A; ls d | wc -l`, fails: `was rejected: collision`, control: both("2")},
}

// leakRows: what an evaluation must not know of itself, and what is fixed so that two
// machines agree.
var leakRows = []row{
	{item: 11, name: "what an earlier run left", in: shell, try: `r=empty; for f in /tmp/left "$TMPDIR/left" "$HOME/left" left /dev/shm/left; do [ -e "$f" ] && r=found; done; : > "$TMPDIR/left"; : > left; echo $r`, want: "empty", control: both("found"), twice: true},
	{item: 74, name: "history of the workspace", in: native, try: "open $WORKSPACE/.git/HEAD", want: "ENOENT", control: both("ok")},
	{item: 74, name: "history beside the inputs", in: native, try: "path /in/.git", want: "ENOENT", control: none("there is no /in outside; the row before is the same file")},
	{item: 75, name: "file that wasn't declared", in: native, try: "open $EXPECTED", want: "ENOENT", control: both("ok")},
	{item: 75, name: "rules", in: native, try: "open $WORKSPACE/p/BUILD.star", want: "ENOENT", control: both("ok")},
	{item: 75, name: "store", in: native, try: "list $STORE", want: "ENOENT", control: both("ok")},
	{item: 75, name: "folder of the inputs", in: shell, try: `set -- $(ls "${INPUT%/*}"); [ $# -eq 1 ] && echo one || echo more`, want: "one", control: both("more")},
	{item: 76, name: "own verdict", in: native, try: "create $WORKSPACE/eval-out/verdict", want: "ENOENT", control: both("ok")},
	{item: 77, name: "secret of the harness", in: native, try: "needle $NEEDLE", want: "absent", control: both("found")},
	{item: 78, name: "boot", in: native, try: "open /proc/sys/kernel/random/boot_id", want: "ENOENT", control: both("ok")},
	{item: 78, name: "memory of the machine", in: native, try: "open /proc/meminfo", want: "ENOENT", control: both("ok")},
	{item: 78, name: "processor", in: native, try: "open /proc/cpuinfo", want: "ENOENT", control: both("ok")},
	{item: 78, name: "load", in: native, try: "open /proc/loadavg", want: "ENOENT", control: both("ok")},
	{item: 78, name: "time since boot", in: native, try: "open /proc/uptime", want: "ENOENT", control: both("ok")},
	{item: 78, name: "cgroup", in: native, try: "matches /proc/self/cgroup eval-", want: "yes|no", control: none("known: where a group bounds it, its name is seen, since the namespace is older; it holds the harness's pid")},
	{item: 78, name: "who and where", in: shell, try: `echo $(uname -n)-$(id -u)-$(id -un)-$TZ-$LANG`, want: "eval-1000-eval-UTC-C.UTF-8", control: none("nothing is refused; TestPosture has the rest")},
}
