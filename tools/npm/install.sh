#!/bin/sh
# Installs the agent command lines of package.json into bin/tools/npm, for
# sandbox/clitest. Nothing happens if this very lock file is there already.
#
# The lock file has the packages' hashes and no addresses: npm finds them where
# it is configured to, and refuses what doesn't hash to what is written here.
# Write it anew with
#   npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved
#
# Without npm or a network the tests skip by name; EVAL_STRICT makes it an error.
set -eu
umask 022 # the tests run them as another user, too
cd "$(dirname "$0")"
to=../../bin/tools/npm

if cmp -s package-lock.json "$to/installed"; then
	exit 0
fi

fail() {
	echo "tools/npm: $1: sandbox/clitest can't run" >&2
	[ -z "${EVAL_STRICT:-}" ] || exit 1
	exit 0
}

command -v npm >/dev/null || fail "npm is missing (it comes with Node.js 20 or later)"
mkdir -p "$to"
rm -f "$to/installed"
cp package.json package-lock.json "$to"
# Scripts of packages don't run: the CLIs are complete without.
npm ci --prefix "$to" --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error ||
	fail "npm could not install the packages"
cp package-lock.json "$to/installed"
