//! A CPU quota of known size: a cgroup that may use a fifth of one CPU, and what a spinning process in it gets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_harness::{Bench, Effort, Facts, Kind, Probe, Stop};
use kelvin_model::{Better, Canaries, Case, Machine, Metric, NoPrediction, Prediction, Treatment, Unit};
use kelvin_sys::clock::monotonic;
use kelvin_sys::usage::{Who, usage};

/// Microseconds of CPU time in each period, and the period.
const QUOTA: u64 = 4_000;
const PERIOD: u64 = 20_000;
/// Whole periods that one figure is made of.
const PERIODS: u64 = 15;

static METRIC: Metric =
    Metric::duration("truth.quota", "CPU time over elapsed time of a spinning process under a quota")
        .unit(Unit::Ratio, Better::Neither)
        .headline(Treatment::AsFound)
        .canaries(Canaries::NONE);

pub(super) static PROBE: Probe = Probe {
    id: "truth.quota",
    summary: "A process that spins in a cgroup with a quota of a fifth of one CPU",
    kind: Kind::Truth,
    method: super::method(
        "Makes a cgroup with 4 ms of CPU time every 20 ms, moves into it, spins for 15 periods from the start of one to \
         the start of another (both seen as the end of a throttled stretch), and divides the CPU time that getrusage \
         counts by the time that passed. The cgroup is removed afterwards.",
    ),
    metrics: &[&METRIC],
    inputs: &[],
    cases: |_: &Machine, _: Effort| vec![Case::new()],
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let group = Group::make()?;
    group.enter().map_err(|error| Stop::skip(format!("may not move into a cgroup of its own: {error}")))?;
    let share = spin();
    drop(group);
    bench.record(&METRIC, vec![share]);
    Ok(())
}

/// Spins from the end of one throttled stretch to the end of another, some periods later.
fn spin() -> f64 {
    let (begun, used) = after_throttling();
    let mut last = (begun, used);
    while last.0 - begun < (PERIODS * PERIOD - PERIOD / 2) * 1000 {
        last = after_throttling();
    }
    (last.1 - used) as f64 / (last.0 - begun) as f64
}

/// Spins until time jumps, which it does when the quota has run out and a new period begins; the time and the CPU time
/// used until then.
fn after_throttling() -> (u64, u64) {
    let jump = (PERIOD - QUOTA) * 1000 / 2;
    let mut last = monotonic();
    loop {
        let now = monotonic();
        if now - last > jump {
            let usage = usage(Who::Process);
            return (now, usage.user + usage.system);
        }
        last = now;
    }
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    let share = QUOTA as f64 / PERIOD as f64;
    // The kernel lets a group overrun by up to a tick, and takes it back in the next period.
    Ok(super::known(share, 0.1, Unit::Ratio, "4 ms of CPU time every 20 ms"))
}

/// A cgroup of this process; it is left and removed when dropped.
struct Group {
    path: PathBuf,
    home: PathBuf,
}

impl Group {
    fn make() -> Result<Self, Stop> {
        let (home, version) = home().ok_or_else(|| Stop::skip("no cgroup with a CPU controller is mounted"))?;
        sweep(&home);
        let path = home.join(format!("kelvin-quota-{}", std::process::id()));
        let denied = |error| Stop::skip(format!("may not make a cgroup below {}: {error}", home.display()));
        fs::create_dir(&path).map_err(denied)?;
        let group = Self { path, home: home.clone() };
        let limited = match version {
            2 => fs::write(group.path.join("cpu.max"), format!("{QUOTA} {PERIOD}")),
            _ => fs::write(group.path.join("cpu.cfs_period_us"), PERIOD.to_string())
                .and_then(|()| fs::write(group.path.join("cpu.cfs_quota_us"), QUOTA.to_string())),
        };
        limited.map_err(|error| Stop::skip(format!("may not set a CPU quota: {error}")))?;
        Ok(group)
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), std::process::id().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.home.join("cgroup.procs"), std::process::id().to_string());
        // The move is done when the write returns, but the kernel may take a moment to call the group empty.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Removes groups that killed processes left behind; one that is in use cannot be removed.
fn sweep(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("kelvin-quota-") {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The cgroup of this process that has the CPU controller, and its version.
fn home() -> Option<(PathBuf, u32)> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    locate(&membership, &mounts).filter(|(path, version)| match version {
        2 => fs::read_to_string(path.join("cgroup.subtree_control")).is_ok_and(|on| on.split(' ').any(|c| c == "cpu")),
        _ => path.is_dir(),
    })
}

/// Finds the directory of a process's CPU cgroup in the texts of /proc/self/cgroup and /proc/self/mountinfo.
fn locate(membership: &str, mounts: &str) -> Option<(PathBuf, u32)> {
    let v1 = membership.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|controller| controller == "cpu").then_some((path, 1))
    });
    let v2 = || membership.lines().find_map(|line| Some((line.strip_prefix("0::")?, 2)));
    let (path, version) = v1.or_else(v2)?;
    let mount = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = after.split(' ');
        let kind = fields.next()?;
        let options = fields.nth(1)?;
        let wanted = match version {
            1 => kind == "cgroup" && options.split(',').any(|option| option == "cpu"),
            _ => kind == "cgroup2",
        };
        wanted.then(|| before.split(' ').nth(4)).flatten()
    })?;
    Some((Path::new(mount).join(path.trim_start_matches('/')), version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_cgroup_is_found_in_both_versions() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let found = locate("3:cpu:/jobs\n0::/\n", mounts);
        assert_eq!(found, Some((PathBuf::from("/sys/fs/cgroup/cpu/jobs"), 1)));
        let found = locate("0::/user.slice\n", mounts);
        assert_eq!(found, Some((PathBuf::from("/sys/fs/cgroup/unified/user.slice"), 2)));
        assert_eq!(locate("", mounts), None);
    }
}
