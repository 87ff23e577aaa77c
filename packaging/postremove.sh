#!/bin/sh
# After removal: the runs of the services go with `purge` only, their user as soon as there are no runs of it. The stores of people are
# in their homes, and theirs: they stay.
set -e
case ${1-} in
purge) rm -rf /var/lib/kelvin ;;
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ ! -e /var/lib/kelvin ] && getent passwd kelvin >/dev/null; then
	userdel kelvin
fi
