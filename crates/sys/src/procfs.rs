//! Values of files of /proc and of control groups, parsed from their texts, so that recorded ones can be read as well.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;

use crate::{Error, Result};

/// The value on the line of a key: `key: value`, `key=value` or `key value`, by the separator.
pub fn value_of_key<'t>(text: &'t str, key: &str, separator: char) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// A line of /proc/PID/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// The number of the mount.
    pub id: u64,
    /// That of the mount it is on.
    pub parent: u64,
    /// `major:minor`.
    pub device: String,
    /// Which directory of its file system is mounted.
    pub root: String,
    /// Where.
    pub target: String,
    /// Options of the mount.
    pub options: String,
    /// Kind of file system.
    pub kind: String,
    /// Device or other source.
    pub source: String,
    /// Options of the file system.
    pub super_options: String,
}

impl MountInfo {
    /// `36 35 98:0 /root /target rw,noatime shared:1 - ext4 /dev/sda1 rw,discard`.
    pub fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let before: Vec<&str> = before.split(' ').collect();
        let mut after = after.split(' ');
        Some(Self {
            id: before[0].parse().ok()?,
            parent: before.get(1)?.parse().ok()?,
            device: (*before.get(2)?).to_owned(),
            root: unescape(before.get(3)?),
            target: unescape(before.get(4)?),
            options: (*before.get(5)?).to_owned(),
            kind: after.next()?.to_owned(),
            source: unescape(after.next()?),
            super_options: after.next().unwrap_or_default().to_owned(),
        })
    }

    /// Whether both show one directory of one file system.
    pub fn is_same_file_system(&self, other: &Self) -> bool {
        (&self.device, &self.root) == (&other.device, &other.root)
    }
}

/// Space, tab, line feed and backslash are written in octal, as `\040`.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for piece in parts {
        let digits = piece.get(..3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => bytes.extend([&[byte], &piece.as_bytes()[3..]].concat()),
            None => bytes.extend([b"\\", piece.as_bytes()].concat()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The number of the mount that an open file is on.
///
/// # Errors
/// A kernel before 3.15, or a /proc that cannot be read.
pub fn mount_id(file: &File) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = value_of_key(&text, "mnt_id", ':').and_then(|id| id.parse().ok());
    id.ok_or_else(|| Error::other("the kernel gives no mount id"))
}

/// The control group of a process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMembership {
    /// The controllers of the hierarchy, by commas; empty for version 2.
    pub controllers: String,
    /// The group.
    pub path: String,
}

/// Most bytes of a path (PATH_MAX of limits.h): a longer one is no group's.
const MAX_PATH_LENGTH: usize = 4096;

impl CgroupMembership {
    /// `4:memory:/a/b` or `0::/a/b`, a line of /proc/PID/cgroup.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        fields.next()?.parse::<u32>().ok()?;
        let (controllers, path) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        (path.len() <= MAX_PATH_LENGTH).then_some(Self { controllers, path })
    }

    /// Whether its hierarchy is that of a controller of version 1.
    pub fn has_controller(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|name| name == controller)
    }

    /// Whether its hierarchy is that of version 2.
    pub fn is_unified(&self) -> bool {
        self.controllers.is_empty()
    }
}

/// Where a control group is seen in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupPath {
    /// 1 or 2.
    pub version: u32,
    /// The directory at which its hierarchy is mounted.
    pub mount: String,
    /// The names of the directories below that, down to the group's.
    pub parts: Vec<String>,
}

impl CgroupPath {
    /// The group that has a controller, by its name in version 1, or else the group of version 2; none if the process is in neither.
    ///
    /// # Errors
    /// Why its directory cannot be seen.
    pub fn find(
        memberships: &[CgroupMembership],
        mounts: &[MountInfo],
        controller: &str,
    ) -> std::result::Result<Option<Self>, String> {
        if let Some(membership) = memberships.iter().find(|membership| membership.has_controller(controller)) {
            let is_mount = |mount: &&MountInfo| {
                mount.kind == "cgroup" && mount.super_options.split(',').any(|option| option == controller)
            };
            let mount = mounts.iter().find(is_mount).ok_or_else(|| {
                format!("the cgroup v1 hierarchy of '{controller}' is not mounted: mount it below /sys/fs/cgroup")
            })?;
            return Self::from_mount(1, mount, &membership.path).map(Some);
        }
        let Some(membership) = memberships.iter().find(|membership| membership.is_unified()) else { return Ok(None) };
        let mount = mounts.iter().find(|mount| mount.kind == "cgroup2");
        let mount = mount.ok_or("cgroup v2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup")?;
        Self::from_mount(2, mount, &membership.path).map(Some)
    }

    /// A path as /proc/PID/cgroup gives it, seen through a mount that may show a part of the hierarchy only. A group outside of the
    /// namespace's own has a path that leads upwards: it cannot be seen, and those next to it belong to others.
    fn from_mount(version: u32, mount: &MountInfo, path: &str) -> std::result::Result<Self, String> {
        let inner = match mount.root.as_str() {
            "/" => path,
            // Outside a cgroup namespace a container's mount begins at its own group.
            root => path.strip_prefix(root).unwrap_or(""),
        };
        let has_parent_component = |path: &str| path.split('/').any(|component| component == "..");
        if has_parent_component(inner) || inner.is_empty() && has_parent_component(path) && path != mount.root {
            return Err(format!("the control group of the process is outside of what {} shows", mount.target));
        }
        let parts = inner.split('/').filter(|part| !part.is_empty());
        Ok(Self { version, mount: mount.target.clone(), parts: parts.map(str::to_owned).collect() })
    }

    /// The directories from the group's up to that of the mount.
    pub fn directories(&self) -> impl Iterator<Item = String> {
        let directory =
            |depth: usize| self.parts[..depth].iter().fold(self.mount.clone(), |name, part| format!("{name}/{part}"));
        (0..=self.parts.len()).rev().map(directory)
    }
}

/// What a group read from a device, in either version's list: `7:0 Read 4096`, or by the key `7:0 rbytes=4096 ...`. A device that
/// it never used is not listed.
pub fn cgroup_device_reads(text: &str, device: &str, key: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix(device)?.strip_prefix(' '));
    let count = |line: &str| match line.strip_prefix("Read ") {
        Some(reads) => reads.trim().parse().ok(),
        None => {
            line.split_ascii_whitespace().find_map(|field| field.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
        }
    };
    lines.filter_map(count).next().unwrap_or(0)
}

/// What the bandwidth limit of CPU time did to a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuThrottling {
    /// Periods in which it had tasks to run.
    pub periods: u64,
    /// Of these, those in which it used up its quota.
    pub throttled_periods: u64,
    /// For how long its tasks waited, in all.
    pub microseconds: u64,
}

impl CpuThrottling {
    /// The text of cpu.stat of either version.
    pub fn parse(text: &str) -> Option<Self> {
        let figure = |key: &str| value_of_key(text, key, ' ').and_then(|value| value.parse::<u64>().ok());
        let microseconds = figure("throttled_usec").or_else(|| figure("throttled_time").map(|time| time / 1000));
        let periods = figure("nr_periods").unwrap_or(0);
        Some(Self { periods, throttled_periods: figure("nr_throttled")?, microseconds: microseconds? })
    }

    /// Of a group and of one around it.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            periods: self.periods.saturating_add(other.periods),
            throttled_periods: self.throttled_periods.saturating_add(other.throttled_periods),
            microseconds: self.microseconds.saturating_add(other.microseconds),
        }
    }
}

/// Ticks of a CPU, or of all together, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// In user mode, also at low priority.
    pub user: u64,
    /// In the kernel, interrupts included.
    pub system: u64,
    /// Of these, in interrupts.
    pub interrupts: u64,
    /// Idle, also while I/O was awaited.
    pub idle: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

impl CpuTicks {
    /// A line of /proc/stat, and its CPU; none for the line of all.
    pub fn parse_line(line: &str) -> Option<(Option<u32>, Self)> {
        let (name, rest) = line.split_once(' ')?;
        let cpu = match name.strip_prefix("cpu")? {
            "" => None,
            number => Some(number.parse().ok()?),
        };
        let fields: Vec<u64> = rest.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, ref rest @ ..] = fields[..] else { return None };
        // Kernels before 2.6.11 have fewer.
        let rest = |index: usize| rest.get(index).copied().unwrap_or(0);
        let interrupts = rest(1).saturating_add(rest(2));
        let ticks = Self {
            user: user.saturating_add(nice),
            system: system.saturating_add(interrupts),
            interrupts,
            idle: idle.saturating_add(rest(0)),
            steal: rest(3),
        };
        Some((cpu, ticks))
    }

    /// Not idle, and not taken by the hypervisor.
    pub fn busy(self) -> u64 {
        self.user.saturating_add(self.system)
    }

    /// All of them.
    pub fn total(self) -> u64 {
        self.busy().saturating_add(self.idle).saturating_add(self.steal)
    }

    /// Those of two together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            user: self.user.saturating_add(other.user),
            system: self.system.saturating_add(other.system),
            interrupts: self.interrupts.saturating_add(other.interrupts),
            idle: self.idle.saturating_add(other.idle),
            steal: self.steal.saturating_add(other.steal),
        }
    }

    /// Those since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }
}

/// The CPU times of /proc/stat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Of all CPUs together.
    pub all_cpus: CpuTicks,
    /// Of each online CPU.
    pub cpus: BTreeMap<u32, CpuTicks>,
}

impl CpuStat {
    /// The text of /proc/stat; none where it lacks the line of all CPUs.
    pub fn parse(text: &str) -> Option<Self> {
        let mut stat = Self::default();
        let mut has_total = false;
        for (cpu, ticks) in text.lines().filter_map(CpuTicks::parse_line) {
            match cpu {
                Some(cpu) => _ = stat.cpus.insert(cpu, ticks),
                None => (stat.all_cpus, has_total) = (ticks, true),
            }
        }
        has_total.then_some(stat)
    }

    /// The times since an earlier reading; of a CPU that was offline then, all of them.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let earlier_ticks = |cpu: &u32| earlier.cpus.get(cpu).copied().unwrap_or_default();
        Self {
            all_cpus: self.all_cpus.since(earlier.all_cpus),
            cpus: self.cpus.iter().map(|(cpu, ticks)| (*cpu, ticks.since(earlier_ticks(cpu)))).collect(),
        }
    }

    /// The sum over these CPUs; none where one of them has no line.
    pub fn sum(&self, cpus: &[u32]) -> Option<CpuTicks> {
        cpus.iter().try_fold(CpuTicks::default(), |sum, cpu| Some(sum.plus(*self.cpus.get(cpu)?)))
    }
}

/// The values of /proc/PID/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// R, S, D and so on.
    pub state: char,
    /// Its process group.
    pub group: i32,
    /// Major faults, also those of children that it has reaped.
    pub major_faults: u64,
    /// Ticks in user mode.
    pub user: u64,
    /// Ticks in the kernel.
    pub system: u64,
    /// Ticks in user mode of children that it has reaped.
    pub children_user: u64,
    /// Ticks in the kernel of these.
    pub children_system: u64,
    /// Its threads.
    pub threads: u64,
}

impl ProcessStat {
    /// The name in parentheses may hold anything.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // By the numbers of proc_pid_stat(5).
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            major_faults: field(12)?.saturating_add(field(13)?),
            user: field(14)?,
            system: field(15)?,
            children_user: field(16)?,
            children_system: field(17)?,
            threads: field(20)?,
        })
    }

    /// All its ticks.
    pub fn ticks(self) -> u64 {
        [self.user, self.system, self.children_user, self.children_system].into_iter().fold(0, u64::saturating_add)
    }
}

/// The values of /proc/PID/schedstat of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Nanoseconds on a CPU.
    pub cpu: u64,
    /// Nanoseconds runnable without one.
    pub run_queue_wait: u64,
    /// How often it was given one.
    pub switches: u64,
}

impl SchedStat {
    /// Three numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace().map(|word| word.parse().ok());
        let mut next = || fields.next()?;
        Some(Self { cpu: next()?, run_queue_wait: next()?, switches: next()? })
    }

    /// Of two threads together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            run_queue_wait: self.run_queue_wait.saturating_add(other.run_queue_wait),
            switches: self.switches.saturating_add(other.switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_line_with_optional_fields_is_parsed() {
        let line = r"36 35 98:0 /mnt1 /mnt\040two rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mount = MountInfo::parse(line).unwrap();
        assert_eq!((mount.id, mount.root.as_str(), mount.target.as_str()), (36, "/mnt1", "/mnt two"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
        assert_eq!(mount.super_options, "rw,errors=continue");
        assert_eq!(MountInfo::parse("36 35 98:0 / /mnt rw"), None);
        assert_eq!(unescape(r"a\04"), r"a\04");
    }

    #[test]
    fn memberships_keep_colons_in_paths() {
        let parse_membership =
            |line: &str| CgroupMembership::parse(line).map(|membership| (membership.controllers, membership.path));
        assert_eq!(parse_membership("4:memory:/a:b"), Some(("memory".into(), "/a:b".into())));
        assert_eq!(parse_membership("0::/"), Some(("".into(), "/".into())));
        assert_eq!(parse_membership("x::/"), None);
        assert_eq!(parse_membership("4:memory"), None);
        assert_eq!(parse_membership(&format!("0::{}", "/a".repeat(2048))).map(|(_, path)| path.len()), Some(4096));
        assert_eq!(parse_membership(&format!("0::{}", "/a".repeat(2049))), None);
    }

    #[test]
    fn partial_mount_shortens_cgroup_path() {
        let mount =
            |root: &str| MountInfo::parse(&format!("30 25 0:26 {root} /sys/fs/cgroup ro - cgroup2 cgroup rw")).unwrap();
        let partial_mount = mount("/docker/abc");
        let parts =
            |mount: &MountInfo, path: &str| CgroupPath::from_mount(2, mount, path).map(|cgroup_path| cgroup_path.parts);
        assert_eq!(parts(&partial_mount, "/docker/abc/x"), Ok(vec!["x".to_owned()]));
        assert_eq!(parts(&partial_mount, "/docker/abc"), Ok(vec![]));
        let full_mount = mount("/");
        for result in
            [parts(&partial_mount, "/../other"), parts(&full_mount, "/../../other"), parts(&full_mount, "/..")]
        {
            assert!(
                result.clone().is_err_and(|reason| reason.contains("outside of what /sys/fs/cgroup shows")),
                "{result:?}"
            );
        }
        let parent_mount = mount("/../other");
        assert_eq!(parts(&parent_mount, "/../other/x"), Ok(vec!["x".to_owned()]));
        assert_eq!(parts(&parent_mount, "/../other"), Ok(vec![]));
    }

    #[test]
    fn device_reads_parse_both_cgroup_versions() {
        let v1 = "254:0 Read 12\n254:0 Write 8\n254:0 Total 20\n254:16 Read 5\nTotal 25\n";
        let v2 = "254:0 rbytes=4096 wbytes=8 rios=12 wios=1 dbytes=0 dios=0\n254:16 rbytes=5 wbytes=0 rios=5 wios=0\n";
        for text in [v1, v2] {
            let reads = ["254:0", "254:16", "254:1", "25"].map(|device| cgroup_device_reads(text, device, "rios"));
            assert_eq!(reads, [12, 5, 0, 0], "{text}");
        }
        assert_eq!(cgroup_device_reads(v2, "254:0", "rbytes"), 4096);
    }

    #[test]
    fn cpu_line_parses() {
        let ticks = CpuTicks { user: 11, system: 7, interrupts: 2, idle: 84, steal: 3 };
        assert_eq!(CpuTicks::parse_line("cpu  10 1 5 80 4 0 2 3 9 9"), Some((None, ticks)));
        assert_eq!(CpuTicks::parse_line("cpu12 10 1 5 80 4 0 2 3"), Some((Some(12), ticks)));
        assert_eq!((ticks.busy(), ticks.total()), (18, 105));
        let old = CpuTicks { user: 3, system: 3, idle: 4, ..CpuTicks::default() };
        assert_eq!(CpuTicks::parse_line("cpu0 1 2 3 4"), Some((Some(0), old)));
        for line in ["intr 1 2 3 4 5 6 7", "cpu0 1 2 3", "cpux 1 2 3 4", ""] {
            assert_eq!(CpuTicks::parse_line(line), None, "{line}");
        }
    }

    #[test]
    fn stat_has_total_and_per_cpu_ticks() {
        let stat = CpuStat::parse("cpu  10 1 5 80 4 0 2 3 9 9\ncpu0 10 1 5 80 4 0 2 3 9 9\nintr 1\n").unwrap();
        assert_eq!((stat.all_cpus.steal, stat.cpus[&0].total()), (3, 105));
        assert_eq!(CpuStat::parse("cpu0 1 2 3 4\n"), None);
    }

    #[test]
    fn cpu_stat_is_summed_and_compared() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 0 0 0 0 0 0 0 0 0\n\
                    cpu1 10 1 5 100 4 1 3 7 0 0\ncpu10 1 1 1 1 1 1 1 1 0 0\n";
        let stat = CpuStat::parse(text).unwrap();
        let sum = CpuTicks { user: 11 + 2, system: 9 + 3, interrupts: 4 + 2, idle: 104 + 2, steal: 7 + 1 };
        assert_eq!(stat.sum(&[1, 10]), Some(sum));
        assert_eq!(stat.sum(&[2]), None);
        let earlier = CpuStat::parse("cpu  8 9 9 9 9 9 9 9\ncpu1 10 1 5 99 4 1 3 7\n").unwrap();
        let since = stat.since(&earlier);
        assert_eq!((since.all_cpus.total(), since.cpus[&1].total(), since.cpus[&10]), (1, 1, stat.cpus[&10]));
    }

    #[test]
    fn process_name_may_contain_parentheses() {
        let after = "S 1 42 1 0 -1 4194560 100 200 3 4 50 60 7 8 20 0 9 0 12345 1000 5";
        for name in ["serve", "a) S 1 (b", "", "0 0 0"] {
            let stat = ProcessStat::parse(&format!("17 ({name}) {after}")).unwrap();
            let expected = ProcessStat {
                state: 'S',
                group: 42,
                major_faults: 7,
                user: 50,
                system: 60,
                children_user: 7,
                children_system: 8,
                threads: 9,
            };
            assert_eq!(stat, expected, "{name}");
        }
        assert_eq!(ProcessStat::parse("17 (serve) S 1 1 1 0 -1 4194560 100 200 3 4 50 60 7"), None);
    }

    #[test]
    fn throttling_parses_in_both_versions() {
        let expected = Some(CpuThrottling { periods: 9, throttled_periods: 4, microseconds: 250 });
        let v2 = "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250\n";
        assert_eq!(CpuThrottling::parse(v2), expected);
        assert_eq!(CpuThrottling::parse("nr_periods 9\nnr_throttled 4\nthrottled_time 250000\n"), expected);
        assert_eq!(CpuThrottling::parse("usage_usec 5\n"), None);
    }

    #[test]
    fn schedstat_parses() {
        let expected = SchedStat { cpu: 59_162_225, run_queue_wait: 67_387_991, switches: 215 };
        assert_eq!(SchedStat::parse("59162225 67387991 215\n"), Some(expected));
        assert_eq!(SchedStat::parse("59162225 67387991"), None);
        assert_eq!(SchedStat::parse("59162225 x 2"), None);
    }
}
