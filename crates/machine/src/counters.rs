//! Counters of machine activity: /proc/stat, pressure, throttling.

use std::collections::BTreeMap;

use crate::cgroups::Groups;
use crate::text::{Root, number, value};

/// Ticks that one CPU, or all together, spent in each way since boot (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Running: user, nice, system, interrupts. Guest time is already part of user and nice.
    pub(crate) busy: u64,
    /// Idle or waiting for input and output.
    pub(crate) idle: u64,
    /// Wanted by us and given to others by the hypervisor.
    pub(crate) steal: u64,
}

impl Ticks {
    pub(crate) fn total(self) -> u64 {
        self.busy.saturating_add(self.idle).saturating_add(self.steal)
    }

    /// The difference from an earlier reading; idle time can step back.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            idle: self.idle.saturating_sub(earlier.idle),
            steal: self.steal.saturating_sub(earlier.steal),
        }
    }

    pub(crate) fn steal_share(self) -> f64 {
        share(self.steal, self.total())
    }

    pub(crate) fn busy_share(self) -> f64 {
        share(self.busy, self.total())
    }
}

/// A part of a whole, 0 of nothing.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The CPU times of /proc/stat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) all: Ticks,
    pub(crate) cpus: BTreeMap<u32, Ticks>,
}

impl Stat {
    pub(crate) fn read(root: Root<'_>) -> Option<Self> {
        parse_stat(&root.text("/proc/stat")?)
    }
}

pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let mut stat = Stat::default();
    let mut found = false;
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(' ') else { continue };
        let Some(suffix) = name.strip_prefix("cpu") else { continue };
        let Some(ticks) = ticks(rest) else { continue };
        if suffix.is_empty() {
            stat.all = ticks;
            found = true;
        } else if let Ok(cpu) = suffix.parse() {
            stat.cpus.insert(cpu, ticks);
        }
    }
    found.then_some(stat)
}

fn ticks(text: &str) -> Option<Ticks> {
    let fields: Vec<u64> = text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, idle, ref rest @ ..] = fields[..] else { return None };
    let rest = |index: usize| rest.get(index).copied().unwrap_or(0);
    let busy = [user, nice, system, rest(1), rest(2)].into_iter().fold(0, u64::saturating_add);
    Some(Ticks { busy, idle: idle.saturating_add(rest(0)), steal: rest(3) })
}

/// Ticks of this process and its reaped children (fields 14 to 17 of proc_pid_stat(5)).
pub(crate) fn own_ticks(root: Root<'_>) -> Option<u64> {
    let text = root.text("/proc/self/stat")?;
    // The name in parentheses may hold anything, spaces and parentheses included.
    let (_, after) = text.rsplit_once(')')?;
    let fields: Option<Vec<u64>> =
        after.split_ascii_whitespace().skip(11).take(4).map(|word| word.parse().ok()).collect();
    fields.filter(|fields| fields.len() == 4).map(|fields| fields.into_iter().fold(0, u64::saturating_add))
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pressure {
    /// Share of the last ten seconds in which some task waited, in percent.
    pub(crate) average_10: f64,
    /// Microseconds since boot in which some task waited.
    pub(crate) total_microseconds: u64,
}

/// The line `some` of /proc/pressure/cpu, io or memory.
pub(crate) fn pressure(root: Root<'_>, resource: &str) -> Option<Pressure> {
    parse_pressure(&root.text(&format!("/proc/pressure/{resource}"))?)
}

pub(crate) fn parse_pressure(text: &str) -> Option<Pressure> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let field = |key: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    Some(Pressure { average_10: number(field("avg10")?)?, total_microseconds: field("total")?.parse().ok()? })
}

/// How often and for how long its quota throttled a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Throttled {
    pub(crate) times: u64,
    pub(crate) microseconds: u64,
}

/// Throttling of this process's group and the groups above it, added up.
pub(crate) fn throttled(root: Root<'_>) -> Option<Throttled> {
    let groups = Groups::read(root).ok()?;
    let place = groups.place("cpu").ok()??;
    let texts = groups.chain(&place, "cpu.stat");
    texts.iter().filter_map(|(_, text)| parse_throttled(text)).reduce(|a, b| Throttled {
        times: a.times.saturating_add(b.times),
        microseconds: a.microseconds.saturating_add(b.microseconds),
    })
}

/// The file that counts how often this process's control group, or its nearest ancestor that counts, was throttled;
/// `None` where there is none.
pub(crate) fn throttle_file(root: Root<'_>) -> Option<String> {
    let groups = Groups::read(root).ok()?;
    let place = groups.place("cpu").ok()??;
    groups.chain(&place, "cpu.stat").into_iter().find(|(_, text)| parse_throttled(text).is_some()).map(|(path, _)| path)
}

pub(crate) fn parse_throttled(text: &str) -> Option<Throttled> {
    let figure = |key: &str| value(text, key, ' ').and_then(|value| value.parse::<u64>().ok());
    // Version 2 counts microseconds, version 1 nanoseconds.
    let microseconds = figure("throttled_usec").or_else(|| figure("throttled_time").map(|time| time / 1000));
    Some(Throttled { times: figure("nr_throttled")?, microseconds: microseconds? })
}

/// Thermal throttling events, summed over all cores; `None` if not reported.
pub(crate) fn thermal_throttles(root: Root<'_>) -> Option<u64> {
    const CPUS: &str = "/sys/devices/system/cpu";
    let cpus = root.names(CPUS).into_iter().filter(|name| name.starts_with("cpu"));
    let counts = cpus.filter_map(|cpu| {
        root.text(&format!("{CPUS}/{cpu}/thermal_throttle/core_throttle_count"))?.parse::<u64>().ok()
    });
    counts.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_all_and_of_each_cpu() {
        let stat = parse_stat("cpu  10 1 5 80 4 0 2 3 9 9\ncpu0 10 1 5 80 4 0 2 3 9 9\nintr 1\n").unwrap();
        assert_eq!(stat.all, Ticks { busy: 18, idle: 84, steal: 3 });
        assert_eq!(stat.cpus[&0].total(), 105);
        assert_eq!(parse_stat("cpu0 1 2 3 4\n"), None);
        assert_eq!(parse_stat("cpu  1 2 3 4\n").unwrap().all, Ticks { busy: 6, idle: 4, steal: 0 });
    }

    #[test]
    fn pressure_and_throttling() {
        let text = "some avg10=11.58 avg60=3.53 avg300=2.00 total=44884980\nfull avg10=0.00 avg60=0 avg300=0 total=0";
        assert_eq!(parse_pressure(text), Some(Pressure { average_10: 11.58, total_microseconds: 44_884_980 }));
        let v2 = "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 250\n";
        assert_eq!(parse_throttled(v2), Some(Throttled { times: 4, microseconds: 250 }));
        let v1 = "nr_periods 9\nnr_throttled 4\nthrottled_time 250000\n";
        assert_eq!(parse_throttled(v1), Some(Throttled { times: 4, microseconds: 250 }));
        assert_eq!(parse_throttled("usage_usec 5\n"), None);
    }
}
