#!/bin/sh
# Builds the images and the release archives of the commit twice, in clones at different paths
# and each with an empty build cache, and compares every file:
#
#   build/reproducible.sh .cache
#
# The folder contains the downloads: Envoy and the C library, which are pinned by their digests.
set -eu
cache=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for place in one another/place; do
	git clone --quiet . "$work/$place"
	(
		cd "$work/$place"
		export GOCACHE="$work/gocache" # empty, because otherwise the second build would reuse results of the first
		make --silent CACHE="$cache" images-all release
		mkdir -p "$work/made" && mv bin/oci bin/release "$work/made"
	)
	rm -rf "$work/gocache" "$work/$(basename "$place").made"
	mv "$work/made" "$work/$(basename "$place").made"
done
diff -r "$work/one.made" "$work/place.made"
find "$work/one.made" -name index.json -exec grep -ho 'sha256:[0-9a-f]*' {} +
cat "$work/one.made/release/checksums.txt"
