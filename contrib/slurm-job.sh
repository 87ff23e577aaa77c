#!/bin/sh
# Measures every host of a Slurm job at once: each leaves a file in a shared directory.
#
#   sbatch --nodes=64 slurm-job.sh /shared/kelvin
#   kelvin report /shared/kelvin/n17-20261130T083000Z.json
#
# One task a host, with all of its CPUs: more tasks on a host would do no harm, since only one measures.
#SBATCH --job-name=kelvin
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=15
set -eu
out=${1:?usage: sbatch slurm-job.sh DIRECTORY [ARGUMENTS OF kelvin run]}
shift

# What srun prints of each host is in the file, too; messages go to the job's log with the number of their task. Test files lie on the
# host's own disk. srun ends with the worst status of all hosts.
exec srun --cpu-bind=none --kill-on-bad-exit=0 --label --output=none \
	"${KELVIN:-kelvin}" run --out "$out" --dir "${TMPDIR:-/tmp}" "$@"
