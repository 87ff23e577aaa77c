#!/bin/sh
# Before removal and upgrades, while the source is still there: removes what was built of this version.
set -e
if [ -e /var/lib/dkms/kelvin/@VERSION@ ]; then
	dkms remove -m kelvin -v @VERSION@ --all
fi
