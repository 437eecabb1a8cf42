# Functions of packaging/static/build, to be sourced: the packages, the linker for musl, one build.
# shellcheck shell=bash

# names ARCH: what rust, gcc and Debian call it, and the release of Debian that has its musl
names() {
    suite=bookworm
    case $1 in
        x86_64) triple=x86_64-unknown-linux-musl gcc=x86_64-linux-gnu debian=amd64 musl=x86_64-linux-musl ;;
        aarch64) triple=aarch64-unknown-linux-musl gcc=aarch64-linux-gnu debian=arm64 musl=aarch64-linux-musl ;;
        riscv64) triple=riscv64gc-unknown-linux-musl gcc=riscv64-linux-gnu debian=riscv64 musl=riscv64-linux-musl suite=trixie ;;
        armv7) triple=armv7-unknown-linux-musleabihf gcc=arm-linux-gnueabihf debian=armhf musl=arm-linux-musleabihf ;;
        i686) triple=i686-unknown-linux-musl gcc=i686-linux-gnu debian=i386 musl=i386-linux-musl ;;
        powerpc64le) triple=powerpc64le-unknown-linux-musl gcc=powerpc64le-linux-gnu debian=ppc64el musl=powerpc64le-linux-musl ;;
        s390x) triple=s390x-unknown-linux-musl gcc=s390x-linux-gnu debian=s390x musl=s390x-linux-musl ;;
        *) return 1 ;;
    esac
}

# install_packages ARCH: installs missing packages. Archives go to a separate directory, since another apt-get on
# the machine may empty the common one at any time.
install_packages() {
    local missing=() package archives as_root=()
    local needed=(rustc-web cargo-web rust-web-src musl-tools gcc file)
    names "$1"
    [ "$1" = "$(uname -m)" ] || needed+=("gcc-$gcc" "libc6-dev-$debian-cross" qemu-user-static)
    for package in "${needed[@]}"; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    archives=$(mktemp -d)
    mkdir "$archives/partial"
    "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 update
    "${as_root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 -o Dir::Cache::archives="$archives" \
        install -y --no-install-recommends "${missing[@]}" >/dev/null
    rm -rf "$archives"
}

# musl_root ARCH DIR: prints the directory of musl's usr/lib. For another machine it is fetched into DIR.
musl_root() {
    local dir=$2 apt=$2/apt options mirror
    names "$1"
    [ ! -e "/usr/lib/$musl/libc.a" ] || return 0
    if [ ! -e "$dir/root" ]; then
        # Private lists: no foreign architecture is added to the machine.
        mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
        mirror=$(grep -rhoE 'https?://[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1)
        options=(-o "APT::Architecture=$debian" -o "APT::Architectures=$debian" -o Dir::State::status=/dev/null
            -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root
            -o Acquire::Languages=none -o "Dir::Etc::sourcelist=$apt/sources" -o Dir::Etc::sourceparts=/dev/null)
        # While a mirror is synchronized, the index of a suite can be unusable for days.
        for suite in "$suite" sid; do
            echo "deb ${mirror:-http://deb.debian.org/debian} $suite main" >"$apt/sources"
            apt-get "${options[@]}" -qq update && (cd "$apt" && apt-get "${options[@]}" -qq download musl-dev >/dev/null) && break
            echo "build: this mirror has no musl of $suite for $debian" >&2
        done
        dpkg -x "$apt"/musl-dev_*.deb "$dir/root.new"
        mv "$dir/root.new" "$dir/root"
        rm -rf "$apt"
    fi
    echo "$dir/root"
}

# make_linker ARCH DIR: DIR/cc links against musl. Debian's specs know no static-pie, so it is added;
# and there is no libunwind, of which panic=abort needs nothing: the stubs end every backtrace at once.
make_linker() {
    local arch=$1 dir=$2 cc=gcc ar=ar root
    names "$arch"
    [ "$arch" = "$(uname -m)" ] || { cc=$gcc-gcc; ar=$gcc-ar; }
    mkdir -p "$dir/lib"
    root=$(musl_root "$arch" "$dir")
    sed -e "s#/usr/lib/$musl#$root&#g; s#/usr/include/$musl#$root&#g" \
        -e "s#%{!shared: \([^}]*\)/Scrt1.o}#%{static-pie:\1/rcrt1.o;!shared:\1/Scrt1.o}#" \
        -e 's#-dynamic-linker \([^ ]*\) -nostdlib %{shared:-shared} %{static:-static}#%{!static:%{!static-pie:-dynamic-linker \1}} -nostdlib %{shared:-shared} %{static:-static} %{static-pie:-static -pie --no-dynamic-linker -z text}#' \
        "$root/usr/lib/$musl/musl-gcc.specs" >"$dir/specs"
    cat >"$dir/unwind.c" <<'C'
int _Unwind_Backtrace(void *f, void *d) { return 5; }
unsigned long _Unwind_GetIP(void *c) { return 0; }
void *_Unwind_GetIPInfo(void *c, int *b) { return 0; }
void *_Unwind_FindEnclosingFunction(void *p) { return 0; }
unsigned long _Unwind_GetCFA(void *c) { return 0; }
#ifdef __arm__
int _Unwind_VRS_Get(void *c, int k, unsigned r, int p, void *v) { *(unsigned *)v = 0; return 0; }
#endif
#ifdef __powerpc__
unsigned long _Unwind_GetDataRelBase(void *c) { return 0; }
unsigned long _Unwind_GetTextRelBase(void *c) { return 0; }
#endif
C
    "$cc" -Os -fno-builtin -c "$dir/unwind.c" -o "$dir/unwind.o"
    rm -f "$dir/lib/libunwind.a"
    "$ar" rcD "$dir/lib/libunwind.a" "$dir/unwind.o"
    # The paths are in here and not in RUSTFLAGS, which go into the hashes of all symbols.
    printf '#!/bin/sh\nexec %s "$@" -L%s -specs %s\n' "$cc" "$dir/lib" "$dir/specs" >"$dir/cc"
    chmod +x "$dir/cc"
}

# build_static ARCH SOURCE TARGET OUT: builds the sources in SOURCE, by way of TARGET, into the file OUT.
build_static() {
    local arch=$1 source=$2 target=$3 out=$4 upper flags sysroot
    local link=$target/link-$arch cargo_home=${CARGO_HOME:-$HOME/.cargo}
    mkdir -p "$link" "$(dirname -- "$out")"
    names "$arch"
    make_linker "$arch" "$link"
    sysroot=$(/usr/bin/rustc --print sysroot)
    flags="-C target-feature=+crt-static -C link-self-contained=no"
    [ -n "${PIE:-}" ] || flags+=" -C relocation-model=static"
    # Nothing ever unwinds (panic=abort), and the tables for it are a sixth of the size.
    flags+=" -C force-unwind-tables=no -C link-arg=-Wl,--no-eh-frame-hdr"
    # One segment for all that is not written, code or data: fewer mappings at each exec and fork.
    flags+=" -C link-arg=-Wl,-z,noseparate-code"
    # The linker's id of the build is a hash of its inputs, which hold paths until they are stripped.
    flags+=" -C link-arg=-Wl,--build-id=none"
    # If more than one matches, the last one wins. No path of this machine may get into the artefact.
    flags+=" --remap-path-prefix=$sysroot=rust --remap-path-prefix=$(realpath "$sysroot/lib/rustlib/src/rust")=rust-src"
    flags+=" --remap-path-prefix=$cargo_home=cargo --remap-path-prefix=$target=target --remap-path-prefix=$source=treaper"
    upper=$(tr a-z- A-Z_ <<<"$triple")
    (
        cd "$source" || exit
        unset CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS "CARGO_TARGET_${upper}_RUSTFLAGS"
        export "CARGO_TARGET_${upper}_LINKER=$link/cc" RUSTFLAGS="$flags" RUSTC=/usr/bin/rustc
        # Building std is not stable yet. This allows it with a stable compiler.
        export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$target"
        /usr/bin/cargo build --quiet --locked --release --bin treaper --target "$triple" \
            -Zbuild-std=std,panic_abort -Zbuild-std-features=optimize_for_size
    )
    cp "$target/$triple/release/treaper" "$out"
}
