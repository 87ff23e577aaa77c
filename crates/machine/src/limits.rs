//! Limits set on this process: quotas of its control groups and its resource limits.

use kelvin_model::{Fact, Limits};

use crate::cgroups::Groups;
use crate::text::Root;

const RESOURCES: &str = "/proc/self/limits";
/// cgroup v1 writes "no limit" as the highest multiple of the page size below 2^63; anything above this is no limit.
const NO_LIMIT: u64 = 1 << 60;

pub(crate) fn read(root: Root<'_>) -> Limits {
    let groups = Groups::read(root);
    Limits {
        cpu_quota: limit(&groups, CPU),
        memory_bytes: limit(&groups, MEMORY),
        processes: processes(root, limit(&groups, PROCESSES)),
        open_files: root
            .fact(RESOURCES, |text| soft_limit(text, "Max open files"))
            .map(|files| files.unwrap_or(u64::MAX)),
        cgroup_version: match &groups {
            Ok(groups) => Fact::known(groups.version(), "/proc/self/cgroup"),
            Err(reason) => Fact::unknown(reason.as_str()),
        },
    }
}

/// The tightest CPU quota of these groups, in CPUs, if they have one.
pub fn cpu_quota(groups: &Groups<'_>) -> Option<f64> {
    limit_of(groups, CPU).get().copied().flatten()
}

/// Whether the groups can be seen, so that no quota is none.
pub fn is_cpu_quota_known(groups: &Groups<'_>) -> bool {
    limit_of(groups, CPU).get().is_some()
}

/// One kind of limit: its controller, and for each version its file and parser.
struct LimitKind<T> {
    controller: &'static str,
    file_v1: &'static str,
    file_v2: &'static str,
    parse_v1: fn(&str, &str) -> Option<T>,
    parse_v2: fn(&str) -> Option<T>,
    /// A second file of version 1, beside the first.
    beside_v1: &'static str,
}

const CPU: LimitKind<f64> = LimitKind {
    controller: "cpu",
    file_v1: "cpu.cfs_quota_us",
    beside_v1: "cpu.cfs_period_us",
    file_v2: "cpu.max",
    parse_v1: |quota, period| share(quota, period),
    parse_v2: |text| text.split_once(' ').and_then(|(quota, period)| share(quota, period)),
};

const MEMORY: LimitKind<u64> = LimitKind {
    controller: "memory",
    file_v1: "memory.limit_in_bytes",
    beside_v1: "",
    file_v2: "memory.max",
    parse_v1: |text, _| amount(text),
    parse_v2: amount,
};

const PROCESSES: LimitKind<u64> = LimitKind {
    controller: "pids",
    file_v1: "pids.max",
    beside_v1: "",
    file_v2: "pids.max",
    parse_v1: |text, _| amount(text),
    parse_v2: amount,
};

/// A quota over its period, in CPUs; `max` and -1 are no quota.
fn share(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.trim().parse::<u64>().ok()?, period.trim().parse::<u64>().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// A number; `max` and the huge figure of version 1 are no limit.
pub(crate) fn amount(text: &str) -> Option<u64> {
    text.parse().ok().filter(|&value| value < NO_LIMIT)
}

/// The tightest limit of the group and its ancestors, which all apply.
fn limit<T: PartialOrd>(groups: &Result<Groups<'_>, String>, kind: LimitKind<T>) -> Fact<Option<T>> {
    match groups {
        Ok(groups) => limit_of(groups, kind),
        Err(reason) => Fact::unknown(reason.as_str()),
    }
}

fn limit_of<T: PartialOrd>(groups: &Groups<'_>, kind: LimitKind<T>) -> Fact<Option<T>> {
    let place = match groups.place(kind.controller) {
        Ok(Some(place)) => place,
        Ok(None) => return Fact::known(None, "/proc/self/cgroup shows no such group"),
        Err(reason) => return Fact::unknown(reason),
    };
    let file = if place.version == 1 { kind.file_v1 } else { kind.file_v2 };
    let texts = groups.chain(&place, file);
    let limits: Vec<(T, &String)> = match place.version {
        1 => kind.limits_v1(&texts, &groups.chain(&place, kind.beside_v1)),
        _ => texts.iter().filter_map(|(name, text)| Some(((kind.parse_v2)(text)?, name))).collect(),
    };
    let tightest = limits.into_iter().reduce(|least, one| if one.0 < least.0 { one } else { least });
    match (tightest, texts.first()) {
        (Some((value, name)), _) => Fact::known(Some(value), name),
        (None, Some((name, _))) => Fact::known(None, name.as_str()),
        // The root group has no such file: it cannot be limited.
        (None, None) => Fact::known(None, format!("no {file} in the visible groups")),
    }
}

impl<T> LimitKind<T> {
    /// The limits of version 1, each from its file and its second file, if it has one.
    fn limits_v1<'t>(&self, texts: &'t [(String, String)], beside: &[(String, String)]) -> Vec<(T, &'t String)> {
        let limit = |(name, text): &'t (String, String)| {
            let directory = name.trim_end_matches(self.file_v1);
            let second = beside.iter().find(|(other, _)| other.strip_prefix(directory) == Some(self.beside_v1));
            Some(((self.parse_v1)(text, second.map_or("", |(_, text)| text))?, name))
        };
        texts.iter().filter_map(limit).collect()
    }
}

/// The tighter of the user's limit and the group's.
fn processes(root: Root<'_>, of_group: Fact<Option<u64>>) -> Fact<Option<u64>> {
    let of_user = root.fact(RESOURCES, |text| soft_limit(text, "Max processes"));
    match (&of_user, &of_group) {
        (Fact::Known { value: Some(user), .. }, Fact::Known { value: Some(group), .. }) => {
            if group < user {
                of_group
            } else {
                of_user
            }
        }
        (_, Fact::Known { value: Some(_), .. }) => of_group,
        (Fact::Known { .. }, _) => of_user,
        (Fact::Unknown { .. }, _) => of_group,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_shares_of_cpus() {
        assert_eq!((CPU.parse_v2)("150000 100000"), Some(1.5));
        assert_eq!((CPU.parse_v2)("max 100000"), None);
        assert_eq!((CPU.parse_v1)("-1", "100000"), None);
        assert_eq!((CPU.parse_v1)("50000", "100000"), Some(0.5));
        assert_eq!((CPU.parse_v1)("50000", "0"), None);
    }

    #[test]
    fn the_huge_figure_of_version_1_is_no_limit() {
        assert_eq!(amount("9223372036854771712"), None);
        assert_eq!(amount("max"), None);
        assert_eq!(amount("536870912"), Some(536_870_912));
    }

    #[test]
    fn soft_limits() {
        let text = "Limit  Soft Limit  Hard Limit  Units\nMax processes   unlimited  unlimited  processes\n\
                    Max open files            1024                 524288               files";
        assert_eq!(soft_limit(text, "Max open files"), Some(Some(1024)));
        assert_eq!(soft_limit(text, "Max processes"), Some(None));
        assert_eq!(soft_limit(text, "Max weight"), None);
    }
}
