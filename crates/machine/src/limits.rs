//! Limits set on this process: quotas of its control groups and its resource limits.

use kelvin_core::{Fact, Limits};

use crate::cgroups::ProcessCgroups;
use crate::root::{FileRoot, excerpt};

const RESOURCE_LIMITS_FILE: &str = "/proc/self/limits";
/// cgroup v1 writes "no limit" as the highest multiple of the page size below 2^63; anything above this is no limit.
const V1_UNLIMITED: u64 = 1 << 60;

pub(crate) fn read(root: FileRoot<'_>) -> Limits {
    let groups = ProcessCgroups::read(root);
    Limits {
        cpu_quota: tightest_limit(&groups, CPU_LIMIT),
        memory_bytes: tightest_limit(&groups, MEMORY_LIMIT),
        processes: processes(root, tightest_limit(&groups, PROCESS_LIMIT)),
        open_files: root
            .line_fact(RESOURCE_LIMITS_FILE, "Max open files", soft_limit)
            .map(|files| files.unwrap_or(u64::MAX)),
        cgroup_version: match &groups {
            Ok(groups) => Fact::known(groups.version(), "/proc/self/cgroup"),
            Err(reason) => Fact::unknown(reason.as_str()),
        },
    }
}

/// The tightest CPU quota of these groups, in CPUs, if they have one.
pub fn cpu_quota(groups: &ProcessCgroups<'_>) -> Option<f64> {
    tightest_limit_of(groups, CPU_LIMIT).get().copied().flatten()
}

/// Whether the groups can be seen, so that no quota is none.
pub fn is_cpu_quota_known(groups: &ProcessCgroups<'_>) -> bool {
    tightest_limit_of(groups, CPU_LIMIT).get().is_some()
}

/// The limit that a file states, which may be none; nothing of a text that states neither.
type ParsedLimit<T> = Option<Option<T>>;

/// One kind of limit: its controller, and for each version its file and parser.
struct LimitKind<T> {
    controller: &'static str,
    file_v1: &'static str,
    file_v2: &'static str,
    /// What is read beside the file of version 1, and joined to it by a space as in version 2.
    period_file_v1: Option<&'static str>,
    parse: fn(&str) -> ParsedLimit<T>,
}

const CPU_LIMIT: LimitKind<f64> = LimitKind {
    controller: "cpu",
    file_v1: "cpu.cfs_quota_us",
    period_file_v1: Some("cpu.cfs_period_us"),
    file_v2: "cpu.max",
    parse: parse_quota,
};

const MEMORY_LIMIT: LimitKind<u64> = LimitKind {
    controller: "memory",
    file_v1: "memory.limit_in_bytes",
    period_file_v1: None,
    file_v2: "memory.max",
    parse: parse_limit,
};

const PROCESS_LIMIT: LimitKind<u64> = LimitKind {
    controller: "pids",
    file_v1: "pids.max",
    period_file_v1: None,
    file_v2: "pids.max",
    parse: parse_limit,
};

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
fn parse_limit(text: &str) -> ParsedLimit<u64> {
    match text {
        "max" => Some(None),
        number => number.parse().ok().map(|value: u64| Some(value).filter(|&value| value < V1_UNLIMITED)),
    }
}

/// A number that is a limit.
pub(crate) fn parse_amount(text: &str) -> Option<u64> {
    parse_limit(text).flatten()
}

/// The tightest limit of the group and its ancestors, which all apply.
fn tightest_limit<T: PartialOrd>(groups: &Result<ProcessCgroups<'_>, String>, kind: LimitKind<T>) -> Fact<Option<T>> {
    match groups {
        Ok(groups) => tightest_limit_of(groups, kind),
        Err(reason) => Fact::unknown(reason.as_str()),
    }
}

fn tightest_limit_of<T: PartialOrd>(groups: &ProcessCgroups<'_>, kind: LimitKind<T>) -> Fact<Option<T>> {
    let place = match groups.controller_path(kind.controller) {
        Ok(Some(place)) => place,
        Ok(None) => return Fact::known(None, "/proc/self/cgroup shows no such group"),
        Err(reason) => return Fact::unknown(reason),
    };
    let file = if place.version == 1 { kind.file_v1 } else { kind.file_v2 };
    let texts = groups.read_with_ancestors(&place, file);
    let period_file = kind.period_file_v1.filter(|_| place.version == 1);
    let periods = period_file.map(|file| groups.read_with_ancestors(&place, file)).unwrap_or_default();
    let mut tightest: Option<(T, &String)> = None;
    for (name, text) in &texts {
        let parsed = match period_file {
            Some(period_file) => {
                let beside = format!("{}{period_file}", name.trim_end_matches(file));
                let period = periods.iter().find(|(other, _)| *other == beside).map_or("", |(_, text)| text);
                (kind.parse)(&format!("{text} {period}"))
            }
            None => (kind.parse)(text),
        };
        let Some(limit) = parsed else {
            let with = period_file.map_or(String::new(), |period_file| format!(" with what {period_file} says"));
            return Fact::unknown(format!("{name} says {:?}, which is not meaningful{with}", excerpt(text)));
        };
        if let Some(value) = limit.filter(|value| tightest.as_ref().is_none_or(|(least, _)| value < least)) {
            tightest = Some((value, name));
        }
    }
    match (tightest, texts.first()) {
        (Some((value, name)), _) => Fact::known(Some(value), name),
        (None, Some((name, _))) => Fact::known(None, name.as_str()),
        // In version 2 a group has the file only where its parent hands the controller on, in version 1 each of a controller that limits.
        (None, None) if place.version == 1 && !place.parts.is_empty() && !groups.has_files(&place) => {
            Fact::unknown(format!("there is no {file} of the group: its files cannot be seen"))
        }
        // The root group has no such file: it cannot be limited.
        (None, None) => Fact::known(None, format!("no {file} in the visible groups")),
    }
}

/// The tighter of the user's limit and the group's.
fn processes(root: FileRoot<'_>, of_group: Fact<Option<u64>>) -> Fact<Option<u64>> {
    let of_user = root.line_fact(RESOURCE_LIMITS_FILE, "Max processes", soft_limit);
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
