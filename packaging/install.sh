#!/bin/sh
# Installs the files beside it below PREFIX (/usr/local), or removes them: [PREFIX=DIR] [DESTDIR=DIR] ./install.sh [remove]
set -eu
cd "$(dirname "$0")"
prefix=${DESTDIR-}${PREFIX-/usr/local}
case ${1-install} in
install)
	find bin lib share -type f | while read -r file; do
		mode=644
		[ "${file%%/*}" != bin ] || mode=755
		install -D -m "$mode" "$file" "$prefix/$file"
	done
	;;
remove)
	find bin lib share -type f | while read -r file; do rm -f "$prefix/$file"; done
	# Others use most of these directories: only empty ones go, and none that every system has.
	find bin lib share -depth -type d ! -path bin ! -path lib ! -path share ! -path share/man |
		while read -r directory; do rmdir "$prefix/$directory" 2>/dev/null || :; done
	;;
*)
	echo "install.sh: $1: it must be install or remove" >&2
	exit 2
	;;
esac
