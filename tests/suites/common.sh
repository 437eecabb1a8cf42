# What tests/suites/run and tests/suites/wrappers share. To be sourced from the root of the project.
# shellcheck shell=bash
here=$PWD/tests/suites
cache=$(realpath -m "${CACHE:-.cache/suites}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

skip() {
    echo "skipped: $1" >&2
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
# lack WHAT: skips because something is missing that can be installed. Where everything is installed (.ci/run), it fails.
lack() {
    [ -n "${FORBID_SKIPS:-}" ] || skip "$1"
    echo "missing: $1" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
[ "$(id -u)" -eq 0 ] || skip 'needs root'
export DEBIAN_FRONTEND=noninteractive
# have PACKAGE...: installs what is missing.
have() {
    dpkg -s "$@" >/dev/null 2>&1 ||
        apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

# sources NAME=FILE...: Debian's sources of NAME as $cache/NAME, which then has FILE, by a private apt configuration, made
# from the machine's own package sources.
sources() {
    local word name wanted=()
    for word; do [ -e "$cache/${word%%=*}/${word#*=}" ] || wanted+=("${word%%=*}"); done
    [ ${#wanted[@]} -gt 0 ] || return 0
    mkdir -p "$cache/parts" "$cache/lists/partial"
    local apt=(-qq -o APT::Sandbox::User=root -o "Dir::State::lists=$cache/lists"
        -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$cache/parts")
    sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/*.sources >"$cache/parts/source.sources" 2>/dev/null
    sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$cache/parts/source.list" 2>/dev/null
    apt-get "${apt[@]}" update >&2 || return
    for name in "${wanted[@]}"; do
        (cd "$cache" && apt-get "${apt[@]}" source --download-only --tar-only "$name" >&2) || return
        rm -rf "${cache:?}/$name"
        mkdir "$cache/$name"
        tar -xf "$cache/$name"_*.orig.tar.* -C "$cache/$name" --strip-components=1 || return
    done
    rm -rf "$cache"/{lists,parts} "$cache"/*.orig*.tar.*
}

passed=0 failed=0
ok() {
    passed=$((passed + 1))
    echo "ok   $1"
}
bad() {
    failed=$((failed + 1))
    echo "FAIL $1"
}

# listed SUITE WHEN...: the names in expected, of these cases.
listed() { awk -v suite="$1" -v when=" ${*:2} " '$1 == suite && index(when, " " $2 " ") { print $3 }' "$here/expected" | sort -u; }

# judge NAME WANTED GOT LOG: two sorted lists of tests that fail.
judge() {
    local differences
    differences=$(diff <(printf '%s\n' "$2") <(printf '%s\n' "$3"))
    if [ -z "$differences" ]; then
        ok "$1"
    else
        bad "$1: < is listed and passes, > fails and is not listed"
        printf '%s\n' "$differences"
        tail -n 40 "$4"
    fi
}
