#!/bin/sh
# Puts the pinned C library of Debian for an architecture, amd64 or arm64, into a directory,
# which it first empties:
#
#   build/libc.sh .cache/libc-arm64 arm64
#
# build/libc.txt pins it: version, architecture, SHA-256 of the package. apt-get fetches it from
# the machine's sources, but with separate package lists, so that the machine's lists do not
# change. The package is cached in the same way as Envoy in build/envoy.sh.
set -eu
target=$1 arch=$2
source=$(dirname "$0")
read -r version sum <<END
$(sed -n "s/^libc6 \([^ ]*\) $arch \([0-9a-f]*\)$/\1 \2/p" "$source/libc.txt")
END
test -n "$sum" || { echo "libc.sh: build/libc.txt has no libc6 for $arch" >&2; exit 1; }
kept=${XDG_CACHE_HOME:-$HOME/.cache}/outrider/libc6_${version}_$arch.deb

pinned() { test -f "$1" && echo "$sum  $1" | sha256sum --check --status; }

if ! pinned "$kept"; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work" # apt-get downloads as another user
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$(dirname "$kept")"
	cat >"$work/conf" <<-END
		APT::Architecture "$arch";
		APT::Architectures { "$arch"; };
		Dir::State::Lists "$work/lists";
		Dir::State::Status "/dev/null";
		Dir::Cache "$work/cache";
		APT::Sandbox::User "root";
		Acquire::Languages "none";
		Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
	END
	(
		cd "$work"
		APT_CONFIG=$work/conf apt-get update -qq || true # some sources have nothing for this architecture
		APT_CONFIG=$work/conf apt-get download -qq "libc6=$version"
	) || { echo "libc.sh: Debian has a newer version than build/libc.txt: name it there, with its SHA-256" >&2; exit 1; }
	mv "$work"/libc6_*.deb "$work/libc6.deb"
	pinned "$work/libc6.deb" || { echo "libc.sh: libc6 $version for $arch has another SHA-256 than in build/libc.txt" >&2; exit 1; }
	cp "$work/libc6.deb" "$kept.$$" && mv "$kept.$$" "$kept"
fi
rm -rf "$target" && mkdir -p "$target"
dpkg-deb --extract "$kept" "$target"
echo "$version" >"$target/version"
