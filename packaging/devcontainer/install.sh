#!/bin/sh
# Installs the static binary of a release, with its manuals, completions and units, below /usr/local. As a dev container
# feature, and as the step of packaging/action.
#
#   VERSION     which release (0.1.0)
#   RELEASES    where they are: an address, or a folder (those of the project)
#   PREFIX      where to install (/usr/local)
set -eu
umask 022
version=${VERSION:-0.1.0}
version=${version#v}
releases=${RELEASES:-https://treaper.example/treaper/releases/download}
prefix=${PREFIX:-/usr/local}
case $(uname -m) in
    x86_64 | aarch64 | riscv64) arch=$(uname -m) ;;
    armv7* | armv8l) arch=armv7 ;;
    i?86) arch=i686 ;;
    *) echo "treaper: no release for $(uname -m)" >&2; exit 1 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() {
    if [ -d "$releases" ]; then cp "$releases/$1" "$work/"
    elif command -v curl >/dev/null; then curl -fsSL -o "$work/$1" "$releases/v$version/$1"
    else wget -q -O "$work/$1" "$releases/v$version/$1"
    fi
}
name=treaper-$version-$arch-linux
for file in "$name.tar.gz" SHA256SUMS; do
    fetch "$file" || { echo "treaper: cannot get $file from $releases" >&2; exit 1; }
done
(cd "$work" && grep " [ *]*$name.tar.gz\$" SHA256SUMS >sum && sha256sum -c sum >/dev/null) ||
    { echo "treaper: the checksum of $name.tar.gz is not the one of SHA256SUMS" >&2; exit 1; }
mkdir -p "$prefix"
gzip -dc "$work/$name.tar.gz" | tar -C "$work" -xf -
# With -f, cp replaces existing links and a program that runs.
cp -Rf "$work/$name/." "$prefix/"
"$prefix/bin/treaper" --version
