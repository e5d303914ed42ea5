#!/bin/sh
# Builds the parts of a release besides the images: an archive of the command outrider for each
# system, which is outrider and the outrider-operate that it runs, with completions, licences and a
# bill of materials, and checksums.txt. The same commit gives
# the same bytes. On other systems, subcommands that need Linux say so.
#
#   build/release.sh bin/release [GOOS/GOARCH...]
set -eu
out=$1
shift
test $# -gt 0 || set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(git describe --tags --always --dirty --abbrev=12)
git describe --tags >/dev/null 2>&1 || version=devel-$version
go run ./build/commands/cmd "$work" "" outrider
mkdir -p "$work/completions/bash" "$work/completions/zsh" "$work/completions/fish" "$work/completions/powershell"
"$work/outrider" completion bash >"$work/completions/bash/outrider"
"$work/outrider" completion zsh >"$work/completions/zsh/_outrider"
"$work/outrider" completion fish >"$work/completions/fish/outrider.fish"
"$work/outrider" completion powershell >"$work/completions/powershell/outrider.ps1"
rm -rf "$out" && mkdir -p "$out"
for target; do
	name=outrider_${version#v}_${target%/*}_${target#*/}
	exe=
	test "${target%/*}" != windows || exe=.exe
	go run ./build/commands/cmd "$work/$name" "$target" outrider outrider-operate
	go run ./build/release "$work/$name" "$work/$name/outrider$exe" "$work/$name/outrider-operate$exe"
	cp -r "$work/completions" LICENSE "$work/$name"
	chmod -R u=rwX,go=rX "$work/$name"
	cp "$work/$name/sbom.cdx.json" "$out/$name.cdx.json"
	(cd "$work/$name" && find . -type f | sed 's|^\./||' | LC_ALL=C sort | tar --create --files-from=- \
		--owner=0 --group=0 --numeric-owner --mtime="$(git -C "$OLDPWD" log -1 --format=%cI)") | gzip -9n >"$out/$name.tar.gz"
done
cd "$out"
sha256sum -- *.cdx.json *.tar.gz | tee checksums.txt
