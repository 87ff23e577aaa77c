#!/bin/sh
# Measures hosts that can be reached by ssh, all at once: each leaves a file in a directory that all of them share.
#
#   run-on-hosts.sh ssh   /shared/kelvin n1 n2 n3
#   run-on-hosts.sh pdsh  /shared/kelvin n1 n2 n3
#   run-on-hosts.sh clush /shared/kelvin n1 n2 n3
#
# Each is one line, of which the name of the host is the tag `node`. With a store on a server in place of the directory:
# --store postgres://kelvin@db/kelvin --keep headlines --jitter 10m. ARGUMENTS= has more arguments of `kelvin run`.
set -eu
usage='usage: run-on-hosts.sh ssh|pdsh|clush DIRECTORY HOST...'
way=${1:?$usage} out=${2:?$usage}
shift 2
[ $# -gt 0 ] || { echo "$usage" >&2; exit 2; }
run="${KELVIN:-kelvin} run --out $out --dir /tmp ${ARGUMENTS-}"

case $way in
ssh)
	# A loop: each host in the background, then the status of each.
	processes=
	for host; do
		ssh "$host" "$run --tag node=$host" </dev/null >/dev/null &
		processes="$processes $!"
	done
	status=0
	for process in $processes; do wait "$process" || status=1; done
	exit $status
	;;
pdsh)
	# -S: the greatest status of all hosts.
	exec pdsh -S -R ssh -f "$#" -w "$(IFS=,; echo "$*")" "$run --tag node=\$(uname -n) >/dev/null"
	;;
clush)
	exec clush -S -f "$#" -w "$(IFS=,; echo "$*")" "$run --tag node=\$(uname -n) >/dev/null"
	;;
*)
	echo "$usage" >&2
	exit 2
	;;
esac
