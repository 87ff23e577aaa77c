//! Which host of a fleet is odd, at what, and by how much.
//!
//! Hosts that should be alike are grouped, and each is compared with its peers in every figure. Pure: it computes on headlines and machine
//! facts, and neither reads nor writes anything.
#![forbid(unsafe_code)]

mod acceptance;
mod cells;
mod facts;
mod families;
mod group;
mod grouping;
mod input;
mod outliers;
mod report;
mod run_states;
mod spread;
mod tails;
mod wording;

pub use input::{FleetInput, HostInput, SeriesInput};
pub use report::{
    Deviations, DifferingFact, FLEET_FORMAT, FactAssociation, FleetGroup, FleetReport, HostAcceptance, OddFact,
    OutlierFamily, OutlierFigure, OutlierHost, SeriesDistribution, SmallGroup,
};

use cells::MIN_HOSTS;
use group::GroupAnalysis;
use grouping::{HostGroup, group_hosts};
use kelvin_core::IndirectSort;

/// Share by which a figure must differ from its peers' median unless another one is named: that of a regression which `kelvin watch` reports.
pub const DEFAULT_THRESHOLD: f64 = 0.05;

/// How hosts are compared.
#[derive(Clone, Debug)]
pub struct FleetRequest {
    /// A tag that narrows groups.
    pub by: Option<String>,
    /// Share by which a figure must differ from its peers' median for its host to be out.
    pub threshold: f64,
    /// The hosts that all others are accepted against, if they are: a flag for each host of the input.
    pub reference: Option<Vec<bool>>,
}

impl Default for FleetRequest {
    fn default() -> Self {
        Self { by: None, threshold: DEFAULT_THRESHOLD, reference: None }
    }
}

/// Compares the hosts of a fleet with their peers. What was selected, in which mode and with which remarks, is for the caller to add.
pub fn compare_fleet(input: &FleetInput, request: &FleetRequest) -> FleetReport {
    let reference = request.reference.as_deref();
    let is_reference = |host: usize| reference.is_some_and(|flags| flags[host]);
    let (mut groups, mut not_compared) = (Vec::new(), Vec::new());
    for group in group_hosts(&input.hosts, request.by.as_deref()) {
        if reference.is_some() && group.hosts.iter().all(|&host| is_reference(host)) {
            continue;
        }
        match too_small(&group, reference) {
            Some(reason) => {
                let hosts = group.hosts.iter().filter(|&&host| !is_reference(host));
                let hosts = hosts.map(|&host| input.hosts[host].label.clone()).collect();
                not_compared.push(SmallGroup { name: group.name, hosts, reason });
            }
            None => {
                let analysis = GroupAnalysis::new(input, &group, (request.threshold, reference));
                let mut report = analysis.report();
                if reference.is_some() {
                    report.acceptance = acceptance::accept_hosts(&analysis);
                    report.outliers.retain(|outlier| report.acceptance.iter().any(|host| host.label == outlier.label));
                }
                groups.push(report);
            }
        }
    }
    groups.indirect_sort_by_key(|group: &FleetGroup| std::cmp::Reverse(group.outliers.len()));
    let is_counted = |host: &usize| !is_reference(*host);
    let hosts = (0..input.hosts.len()).filter(is_counted).count();
    let runs = input.run_hosts.iter().filter(|&&host| is_counted(&(host as usize))).count();
    FleetReport {
        fleet_format: FLEET_FORMAT,
        selection: Vec::new(),
        like: None,
        mode: String::new(),
        by: request.by.clone(),
        hosts,
        runs,
        threshold: request.threshold,
        notes: Vec::new(),
        groups,
        not_compared,
    }
}

/// Why a group cannot be compared, if it cannot.
fn too_small(group: &HostGroup, reference: Option<&[bool]>) -> Option<String> {
    let peers = group.hosts.iter().filter(|&&host| reference.is_none_or(|flags| flags[host])).count();
    let count_text = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    match (peers, reference) {
        (MIN_HOSTS.., _) => None,
        (0, Some(_)) => Some("no reference host is alike".to_owned()),
        (peers, Some(_)) => {
            Some(format!("{} alike, at least {MIN_HOSTS} are needed", count_text(peers, "reference host")))
        }
        (1, None) => Some("no other host is alike".to_owned()),
        (peers, None) => Some(format!("{} alike, at least {MIN_HOSTS} are needed", count_text(peers, "host"))),
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Case, Fact, Metric};

    use super::*;

    static TIME: Metric = Metric::duration("os.made", "A figure of a test");

    /// Hosts of one run each, and one figure.
    fn input(hosts: usize) -> FleetInput {
        let host = |index: usize| {
            let mut host = HostInput { label: format!("n{index}"), ..HostInput::default() };
            host.machine.cpu.model_name = Fact::known("A".into(), "a test");
            host.tags.insert("rack".into(), format!("r{}", index % 2));
            host
        };
        FleetInput {
            hosts: (0..hosts).map(host).collect(),
            run_hosts: (0..hosts as u32).collect(),
            series: vec![SeriesInput {
                metric: TIME,
                case: Case::new(),
                values: (0..hosts).map(|host| 100.0 + host as f32).collect(),
            }],
        }
    }

    #[test]
    fn small_groups_say_why() {
        let reasons = |hosts: usize, request: &FleetRequest| -> Vec<String> {
            compare_fleet(&input(hosts), request).not_compared.into_iter().map(|group| group.reason).collect()
        };
        let usual = FleetRequest::default();
        assert_eq!(reasons(1, &usual), ["no other host is alike"]);
        assert_eq!(reasons(3, &usual), ["3 hosts alike, at least 4 are needed"]);
        assert!(reasons(4, &usual).is_empty());
        let by_rack = FleetRequest { by: Some("rack".into()), ..FleetRequest::default() };
        assert_eq!(reasons(6, &by_rack), ["3 hosts alike, at least 4 are needed"; 2]);
        let like = |references: usize| FleetRequest {
            reference: Some((0..6).map(|host| host < references).collect()),
            ..FleetRequest::default()
        };
        assert_eq!(reasons(6, &like(0)), ["no reference host is alike"]);
        assert_eq!(reasons(6, &like(1)), ["1 reference host alike, at least 4 are needed"]);
        assert!(reasons(6, &like(4)).is_empty() && reasons(6, &like(6)).is_empty());
    }

    #[test]
    fn distribution_is_over_hosts() {
        let report = compare_fleet(&input(5), &FleetRequest::default());
        let [group] = &report.groups[..] else { panic!("{report:?}") };
        let [series] = &group.series[..] else { panic!("{:?}", group.series) };
        assert_eq!((series.median, series.quartiles), (102.0, [101.0, 103.0]));
        assert_eq!((&series.lowest, &series.highest), (&("n0".to_owned(), 100.0), &("n4".to_owned(), 104.0)));
        assert_eq!((series.hosts, series.runs, series.between_runs), (5, 5, None));
        assert_eq!((report.hosts, report.runs, group.runs_of_host), (5, 5, [1, 1, 1]));
        // Five cells of one series show no tails: no host can be out.
        assert!(group.outliers.is_empty() && group.power.contains("no host can be out by one"));
    }

    #[test]
    fn reference_hosts_are_no_part_of_the_count() {
        let reference = Some((0..6).map(|host| host < 4).collect());
        let report = compare_fleet(&input(6), &FleetRequest { reference, ..FleetRequest::default() });
        assert_eq!((report.hosts, report.runs), (2, 2));
        let accepted: Vec<(&str, bool)> =
            report.groups[0].acceptance.iter().map(|host| (host.label.as_str(), host.is_accepted)).collect();
        assert_eq!(accepted, [("n4", true), ("n5", true)]);
    }
}
