#!/bin/sh
# Installs what tests/mcp/run.py needs: a Python venv with the official MCP and ACP SDKs, and server-everything for npx, both
# pinned, into .cache/mcp below the project root. Run again it does nothing and needs no network. Debian packages are
# only asked for when something is missing.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
cache=$root/.cache/mcp

say() { echo "setup: $*" >&2; }

apt_install() {
    command -v apt-get >/dev/null || { say "missing: $* (and no apt-get to install it)"; exit 1; }
    as_root=''
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || { say "missing: $* (install it as root)"; exit 1; }
        as_root='sudo -n'
    fi
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    if [ -z "${apt_updated:-}" ]; then
        $as_root apt-get -o DPkg::Lock::Timeout=300 -qq update >&2
        apt_updated=1
    fi
    $as_root apt-get -o DPkg::Lock::Timeout=300 -qq install -y --no-install-recommends "$@" >&2
}

# A Python that can make a venv. The system's own comes first: other users may not run one in a home directory.
has_venv() { "$1" -c 'import sys, ensurepip, venv, sqlite3; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
find_python() {
    for python in /usr/bin/python3 "$(command -v python3 || true)"; do
        [ -n "$python" ] && [ -x "$python" ] && has_venv "$python" && return
    done
    return 1
}

# One set-up at a time.
mkdir -p "$cache"
command -v flock >/dev/null || apt_install util-linux
exec 9>"$cache/.lock"
flock 9

stamp=$(cat "$here/requirements.txt" "$here/package.json" "$here/package-lock.json" "$here/setup.sh" | cksum)
up_to_date() {
    [ "$(cat "$cache/.done" 2>/dev/null)" = "$stamp" ] && [ -d "$cache/node/node_modules" ] && command -v npx >/dev/null &&
        "$cache/venv/bin/python" -c 'from importlib.util import find_spec; assert find_spec("mcp") and find_spec("acp")' 2>/dev/null
}
if up_to_date; then exit 0; fi

find_python || { apt_install python3 python3-venv && find_python; } || { say "no Python 3.10 or newer with venv"; exit 1; }
command -v node >/dev/null || apt_install nodejs
command -v npm >/dev/null && command -v npx >/dev/null || apt_install npm

say "Python SDKs into .cache/mcp/venv"
rm -rf "$cache/venv"
"$python" -m venv "$cache/venv"
"$cache/venv/bin/python" -m pip install --quiet --disable-pip-version-check --prefer-binary -r "$here/requirements.txt" >&2

say "server-everything into .cache/mcp/node"
rm -rf "$cache/node"
mkdir -p "$cache/node"
cp "$here/package.json" "$here/package-lock.json" "$cache/node/"
(cd "$cache/node" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error >&2)

echo "$stamp" >"$cache/.done"
say "done"
