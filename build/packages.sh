#!/bin/sh
# Installs the Debian packages whose program or file is missing:
#
#   build/packages.sh nftables=nft containerd fonts-dejavu-core=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
#
# If nothing is missing, it calls no package manager. It names the packages that cannot be installed,
# and then exits with status 1.
set -eu
PATH=$PATH:/usr/sbin:/sbin

# Prints the packages that are missing.
missing() {
	for p in "$@"; do
		case ${p#*=} in
		/*) test -e "${p#*=}" || printf ' %s' "${p%%=*}" ;;
		*) command -v "${p#*=}" >/dev/null || printf ' %s' "${p%%=*}" ;;
		esac
	done
}

lacks=$(missing "$@")
test -n "$lacks" || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing$lacks" >&2
	export DEBIAN_FRONTEND=noninteractive
	# Reinstall, because the package manager may believe that the package is installed. If the packages
	# cannot be installed together, try one by one.
	install="apt-get install -qq -y --no-install-recommends --reinstall"
	apt-get update -qq || true
	$install $lacks >/dev/null || for p in $lacks; do $install "$p" >/dev/null || true; done
	lacks=$(missing "$@")
	test -n "$lacks" || exit 0
	echo "packages.sh: missing, and apt-get cannot install:$lacks" >&2
	exit 1
fi
echo "packages.sh: missing:$lacks; on Debian as root this command installs them" >&2
exit 1
