//! Limits set on this process: quotas of its control groups, which are found here for versions 1 and 2, and its resource limits.

use kelvin_core::{Fact, Limits};
use kelvin_sys::procfs::{CgroupMembership, CgroupPath, MountInfo};

use crate::disks;
use crate::root::{FileRoot, excerpt, fact_of};

const RESOURCE_LIMITS_FILE: &str = "/proc/self/limits";
/// cgroup v1 writes "no limit" as the highest multiple of the page size below 2^63; anything above this is no limit.
const V1_UNLIMITED: u64 = 1 << 60;

pub(crate) fn read(root: FileRoot<'_>) -> Limits {
    let groups = ProcessCgroups::read(root);
    let groups = groups.as_ref().map_err(String::clone);
    let group_limit = fact_of(groups.clone().and_then(|groups| tightest_limit(groups, PROCESS_LIMIT)));
    let user_limit = root.line_fact(RESOURCE_LIMITS_FILE, "Max processes", soft_limit);
    // The tighter of both.
    let is_group_tighter = match (&user_limit, &group_limit) {
        (Fact::Known { value: Some(user), .. }, Fact::Known { value: Some(group), .. }) => group < user,
        (Fact::Unknown { .. }, _) | (_, Fact::Known { value: Some(_), .. }) => true,
        _ => false,
    };
    Limits {
        cpu_quota: fact_of(groups.clone().and_then(|groups| tightest_limit(groups, CPU_LIMIT))),
        memory_bytes: fact_of(groups.clone().and_then(|groups| tightest_limit(groups, MEMORY_LIMIT))),
        processes: if is_group_tighter { group_limit } else { user_limit },
        open_files: root
            .line_fact(RESOURCE_LIMITS_FILE, "Max open files", soft_limit)
            .map(|files| files.unwrap_or(u64::MAX)),
        cgroup_version: fact_of(groups.map(|groups| (groups.version(), "/proc/self/cgroup"))),
    }
}

/// The tightest CPU quota of these groups, in CPUs, if they have one.
pub(crate) fn cpu_quota(groups: &ProcessCgroups<'_>) -> Fact<Option<f64>> {
    fact_of(tightest_limit(groups, CPU_LIMIT))
}

/// The limit that a file states, which may be none; nothing of a text that states neither.
type ParsedLimit<T> = Option<Option<T>>;

/// One kind of limit: its controller, and for each version the files whose texts state it, joined by a space.
struct LimitKind<T> {
    controller: &'static str,
    files: [&'static [&'static str]; 2],
    parse: fn(&str) -> ParsedLimit<T>,
}

const CPU_LIMIT: LimitKind<f64> = LimitKind {
    controller: "cpu",
    files: [&["cpu.cfs_quota_us", "cpu.cfs_period_us"], &["cpu.max"]],
    parse: parse_quota,
};
const MEMORY_LIMIT: LimitKind<u64> =
    LimitKind { controller: "memory", files: [&["memory.limit_in_bytes"], &["memory.max"]], parse: parse_limit };
const PROCESS_LIMIT: LimitKind<u64> =
    LimitKind { controller: "pids", files: [&["pids.max"], &["pids.max"]], parse: parse_limit };

/// A quota over its period, in CPUs; `max` and -1 are no quota.
fn parse_quota(text: &str) -> ParsedLimit<f64> {
    let (quota, period) = text.split_once(' ')?;
    if ["max", "-1"].contains(&quota.trim()) {
        return Some(None);
    }
    let (quota, period) = (quota.trim().parse::<u64>().ok()?, period.trim().parse::<u64>().ok()?);
    (period > 0).then(|| Some(quota as f64 / period as f64))
}

/// A number; `max` and the huge figure of version 1 are no limit.
pub(crate) fn parse_limit(text: &str) -> ParsedLimit<u64> {
    match text {
        "max" => Some(None),
        number => number.parse().ok().map(|value: u64| Some(value).filter(|&value| value < V1_UNLIMITED)),
    }
}

/// The tightest limit of the group and its ancestors, which all apply.
fn tightest_limit<T: PartialOrd>(
    groups: &ProcessCgroups<'_>,
    kind: LimitKind<T>,
) -> Result<(Option<T>, String), String> {
    let Some(group_path) = groups.controller_path(kind.controller)? else {
        return Ok((None, "/proc/self/cgroup shows no such group".into()));
    };
    let files = if group_path.version == 1 { kind.files[0] } else { kind.files[1] };
    let texts = groups.read_with_ancestors(&group_path, files[0]);
    let mut tightest: Option<(T, &String)> = None;
    for (name, text) in &texts {
        let other_texts =
            files[1..].iter().map(|file| groups.root.text(&name.replace(files[0], file)).unwrap_or_default());
        let lines: Vec<String> = std::iter::once(text.clone()).chain(other_texts).collect();
        let limit = (kind.parse)(&lines.join(" ")).ok_or_else(|| {
            let hint: String = files[1..].iter().map(|file| format!(" with what {file} says")).collect();
            format!("{name} says {:?}, which is not meaningful{hint}", excerpt(text))
        })?;
        if let Some(value) = limit.filter(|value| tightest.as_ref().is_none_or(|(lowest, _)| value < lowest)) {
            tightest = Some((value, name));
        }
    }
    match (tightest, texts.first()) {
        (Some((value, name)), _) => Ok((Some(value), name.clone())),
        (None, Some((name, _))) => Ok((None, name.clone())),
        // In version 2 a group has the file only where its parent hands the controller on, in version 1 each of a controller that limits.
        (None, None) if group_path.version == 1 && !group_path.parts.is_empty() && !groups.has_files(&group_path) => {
            Err(format!("there is no {} of the group: its files cannot be seen", files[0]))
        }
        // The root group has no such file: it cannot be limited.
        (None, None) => Ok((None, format!("no {} in the visible groups", files[0]))),
    }
}

/// The soft limit of one line of /proc/self/limits: `Some(None)` for `unlimited`.
fn soft_limit(text: &str, name: &str) -> Option<Option<u64>> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_ascii_whitespace().next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// The control groups of a process.
#[derive(Clone, Debug)]
pub struct ProcessCgroups<'a> {
    pub(crate) root: FileRoot<'a>,
    memberships: Vec<CgroupMembership>,
    mounts: Vec<MountInfo>,
}

impl<'a> ProcessCgroups<'a> {
    /// Those of this process.
    pub(crate) fn read(root: FileRoot<'a>) -> Result<Self, String> {
        Self::of_process(root, "self")
    }

    /// Those of a process, by its number or `self`.
    ///
    /// # Errors
    /// A process that cannot be seen.
    pub fn of_process(root: FileRoot<'a>, process: &str) -> Result<Self, String> {
        let text = root.read(&format!("/proc/{process}/cgroup"))?;
        let mounts = disks::mount_lines(root).into_iter().filter(|mount| mount.kind.starts_with("cgroup")).collect();
        Ok(Self { root, memberships: text.lines().filter_map(CgroupMembership::parse).collect(), mounts })
    }

    /// 1 if one of the controllers that limit a process is of version 1, else 2, or 0 without any group.
    pub(crate) fn version(&self) -> u32 {
        match () {
            () if ["cpu", "memory", "pids"].into_iter().any(|name| self.is_of_version_1(name)) => 1,
            () if self.memberships.iter().any(CgroupMembership::is_unified) => 2,
            () => 0,
        }
    }

    /// Whether a controller is in a hierarchy of version 1.
    pub(crate) fn is_of_version_1(&self, controller: &str) -> bool {
        self.memberships.iter().any(|membership| membership.has_controller(controller))
    }

    /// The group that has a controller; none if the process is in none.
    pub(crate) fn controller_path(&self, controller: &str) -> Result<Option<CgroupPath>, String> {
        CgroupPath::find(&self.memberships, &self.mounts, controller)
    }

    /// Whether the files of a group can be seen.
    pub(crate) fn has_files(&self, group_path: &CgroupPath) -> bool {
        self.root.is_live() && group_path.directories().next().is_some_and(|directory| self.root.exists(&directory))
    }

    /// A file of a group and of those around it, from the inmost outwards, where it exists: its name and text.
    pub(crate) fn read_with_ancestors(&self, group_path: &CgroupPath, file: &str) -> Vec<(String, String)> {
        let names = group_path.directories().map(|directory| format!("{directory}/{file}"));
        names.filter_map(|name| self.root.text(&name).map(|text| (name, text))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_parsed_as_cpu_shares() {
        assert_eq!(parse_quota("150000 100000"), Some(Some(1.5)));
        assert_eq!(parse_quota("max 100000"), Some(None));
        assert_eq!(parse_quota("-1 100000"), Some(None));
        assert_eq!(parse_quota("-1 "), Some(None));
        assert_eq!(parse_quota("50000 100000"), Some(Some(0.5)));
        for (quota, period) in [("50000", "0"), ("50000", ""), ("abc", "100000")] {
            assert_eq!(parse_quota(&format!("{quota} {period}")), None, "{quota} {period}");
        }
        for text in ["abc", "50000", "", "abc 100000", "-5 100000"] {
            assert_eq!(parse_quota(text), None, "{text}");
        }
    }

    #[test]
    fn v1_maximum_is_no_limit() {
        assert_eq!(parse_limit("9223372036854771712"), Some(None));
        assert_eq!(parse_limit("max"), Some(None));
        assert_eq!(parse_limit("536870912"), Some(Some(536_870_912)));
        assert_eq!(["", "abc", "-2"].map(parse_limit), [None; 3]);
    }

    #[test]
    fn soft_limits_are_parsed() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax processes   unlimited  unlimited  processes\n\
                    Max open files            1024                 524288               files";
        assert_eq!(soft_limit(text, "Max open files"), Some(Some(1024)));
        assert_eq!(soft_limit(text, "Max processes"), Some(None));
        assert_eq!(soft_limit(text, "Max weight"), None);
    }
}
