# Functions, to be sourced: roots of Debian, each with its own Rust, in which tests/architectures/run and
# tests/toolchains/run build. The sources are in /src there. No network is needed inside: the crates are the machine's.
# shellcheck shell=bash

roots=${ROOTS:-$PWD/.cache/roots}

# needs PACKAGE...: installs what is missing on this machine
needs() {
    local missing=() package
    for package; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
    [ ${#missing[@]} -eq 0 ] || DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y \
        --no-install-recommends "${missing[@]}" >/dev/null
}

# rust_root SUITE: makes a root of this release of Debian with its rustc and cargo, once, and prints its directory
rust_root() {
    local root=$roots/rust-$1 mirror
    [ ! -e "$root/usr/bin/cargo" ] || { echo "$root"; return; }
    needs mmdebstrap || return
    mirror=$(grep -rhoE 'https?://[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1)
    mkdir -p "$roots"
    rm -rf --one-file-system "$root.new"
    # The mirror may be a copy of an earlier day.
    mmdebstrap --quiet --variant=apt --include=cargo,gcc,libc6-dev,mount,procps,rustc,util-linux \
        --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Check-Valid-Until "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        "$1" "$root.new" "${mirror:-http://deb.debian.org/debian}" >&2 || return
    mkdir -p "$root.new/src" "$root.new/root/.cargo/registry"
    mv "$root.new" "$root"
    echo "$root"
}

# root_apt ROOT ARGUMENT...: its apt-get
root_apt() {
    local root=$1
    shift
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qq "$@" >&2
}

# foreign_std ROOT ARCH: the standard library of Rust for another architecture, of the root's own version. Only for the linker:
# the packages on which it depends are for programs that run. Its lists are its own, since the index of one architecture can be
# unusable while a mirror is synchronized, and apt would refuse those of the others as well.
foreign_std() {
    local root=$1 arch=$2
    [ ! -e "$root/foreign/$arch" ] || return 0
    # shellcheck disable=SC2016  # for the shell there
    chroot "$root" sh -c 'arch=$1 dir=/foreign/$1.new
        rm -rf "$dir" && mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial" && cd "$dir" || exit
        set -- -qq -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any \
            -o "Dir::State::lists=$dir/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$dir/cache"
        apt-get "$@" update && apt-get "$@" download libstd-rust-dev && dpkg -x libstd-rust-dev_*.deb / &&
            rm -rf "$dir" && touch "/foreign/$arch"' sh "$arch" >&2
}

# within ROOT COMMAND...: runs it there as root, in /src, which is this tree. It leaves no process and no mount.
within() {
    local root=$1 registry=${CARGO_HOME:-$HOME/.cargo}/registry
    shift
    mkdir -p "$registry"
    # The first process stays, to reap what a test orphans.
    # shellcheck disable=SC2016  # for the inner shell
    unshare --mount --pid --fork --kill-child --propagation private sh -c '
        root=$1 registry=$2; shift 2
        # The root is a mount of its own: unshare, in the tests, wants that to be so.
        mount --bind "$root" "$root" && mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
            mount --bind . "$root/src" && mount --bind "$registry" "$root/root/.cargo/registry" &&
            mount -t tmpfs -o mode=1777 tmp "$root/tmp" || exit
        chroot "$root" env --chdir=/src -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 "$@"
        exit $?' sh "$root" "$registry" "$@"
}
