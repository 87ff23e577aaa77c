#!/bin/sh
# After installation and upgrades: makes the user of the services, where there is systemd to run them.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers kelvin.conf
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
