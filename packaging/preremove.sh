#!/bin/sh
# Before removal, but not before an upgrade: stops and disables the timers and the socket, for links of enabled ones would be left.
set -e
case ${1-} in
remove | 0)
	units='kelvin-watch.timer kelvin-run.timer kelvin-serve.socket'
	if command -v systemctl >/dev/null; then
		systemctl --quiet disable $units
	fi
	if [ -d /run/systemd/system ]; then
		systemctl stop $units kelvin-watch.service kelvin-run.service kelvin-serve.service
	fi
	;;
esac
