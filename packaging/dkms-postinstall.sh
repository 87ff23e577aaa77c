#!/bin/sh
# After installation and upgrades: builds the module for each kernel that has headers. Kernels that come later are DKMS's own business.
set -e
for headers in /lib/modules/*/build; do
	[ -e "$headers" ] || continue
	kernel=${headers#/lib/modules/}
	dkms install -m kelvin -v @VERSION@ -k "${kernel%/build}"
done
