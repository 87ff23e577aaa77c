//! One group of hosts that should be alike: its series, its hosts that are out, and what goes with them.

use std::collections::BTreeMap;

use kelvin_core::{IndirectSort, Metric, Name};
use kelvin_stats::{LogFactorials, Sorted, median};

use crate::cells::{Cell, GroupRuns, MIN_HOSTS, SeriesCells};
use crate::facts::GroupFacts;
use crate::families::{Family, families, family_logs, worse_sign};
use crate::grouping::{HostGroup, facts_of};
use crate::input::FleetInput;
use crate::outliers::{Finding, OutlierTests, TestInput, false_discovery_rate, test_candidates};
use crate::report::{Deviations, FleetGroup, OutlierFamily, OutlierFigure, OutlierHost, SeriesDistribution};
use crate::wording::{AreaFindings, is_speed, outlier_line, share_text, worse_share};

/// A group under analysis.
pub(crate) struct GroupAnalysis<'a> {
    pub input: &'a FleetInput,
    pub group: &'a HostGroup,
    /// Share by which a figure must differ.
    pub threshold: f64,
    pub runs: GroupRuns,
    /// Of each series of the input; none where too few hosts have it.
    pub series: Vec<Option<SeriesCells>>,
    pub families: Vec<(Family, Option<SeriesCells>)>,
    pub tests: OutlierTests,
    pub facts: GroupFacts,
}

impl<'a> GroupAnalysis<'a> {
    /// Compares the hosts of a group with their peers. `is_reference` names the hosts of the input that others are accepted against: then
    /// these are the peers, and all others are tested.
    pub fn new(input: &'a FleetInput, group: &'a HostGroup, (threshold, is_reference): (f64, Option<&[bool]>)) -> Self {
        let all_ranges = input.run_ranges();
        let is_peer: Vec<bool> = group.hosts.iter().map(|&host| is_reference.is_none_or(|flags| flags[host])).collect();
        let is_tested = is_peer.iter().map(|is_peer| is_reference.is_none() || !is_peer).collect();
        let ranges: Vec<_> = group.hosts.iter().map(|&host| all_ranges[host].clone()).collect();
        let total_runs = ranges.iter().map(ExactSizeIterator::len).sum();
        let runs = GroupRuns { ranges, is_peer, is_tested, log_factorials: LogFactorials::new(total_runs) };
        let compare = |values: &[f32]| runs.compare(|run| positive_log(values[run]), threshold);
        let series: Vec<Option<SeriesCells>> = input.series.iter().map(|series| compare(&series.values)).collect();
        let centers: Vec<f64> =
            series.iter().map(|cells| cells.as_ref().map_or(f64::NAN, |cells| cells.center)).collect();
        let compare_family = |family: Family| {
            let log_ranges: Vec<Vec<Option<f64>>> = runs
                .ranges
                .iter()
                .map(|range| family_logs(&family, (&input.series, &centers), range.clone()))
                .collect();
            let mut logs = vec![None; input.run_hosts.len()];
            for (range, values) in runs.ranges.iter().zip(log_ranges) {
                logs[range.clone()].copy_from_slice(&values);
            }
            let cells = runs.compare(|run| logs[run], threshold);
            (family, cells)
        };
        let families: Vec<(Family, Option<SeriesCells>)> =
            families(&input.series, |index| series[index].is_some()).into_iter().map(compare_family).collect();
        let tests = test_candidates(&TestInput {
            series: &series,
            families: &families,
            members_of: &|family| family.members(&input.series),
            is_peer: &runs.is_peer,
            is_tested: &runs.is_tested,
            runs_of_host: median_run_count(&runs),
        });
        let facts: Vec<_> = group.hosts.iter().map(|&host| facts_of(&input.hosts[host].machine)).collect();
        Self { input, group, threshold, series, families, tests, facts: GroupFacts::new(&facts), runs }
    }

    /// The report of the group.
    pub fn report(&self) -> FleetGroup {
        let mut outliers: Vec<(usize, OutlierHost)> =
            (0..self.group.hosts.len()).filter_map(|host| Some((host, self.outlier(host)?))).collect();
        let severity = |outlier: &OutlierHost| {
            let distances = outlier.figures.iter().map(|figure| figure.distance.abs());
            distances.chain(outlier.families.iter().map(|family| family.distance.abs())).fold(0.0, f64::max)
        };
        outliers.indirect_sort_by(|a, b| severity(&b.1).total_cmp(&severity(&a.1)).then(a.1.label.cmp(&b.1.label)));
        let mut is_outlier = vec![false; self.group.hosts.len()];
        let has_figures = |outlier: &OutlierHost| !outlier.figures.is_empty() || !outlier.families.is_empty();
        outliers.iter().filter(|(_, outlier)| has_figures(outlier)).for_each(|(host, _)| is_outlier[*host] = true);
        let order: Vec<usize> = outliers.iter().map(|(host, _)| *host).collect();
        FleetGroup {
            name: self.group.name.clone(),
            hosts: self.group.hosts.len(),
            runs_of_host: self.runs_of_host(),
            tests: self.tests.tests,
            false_discovery_rate: false_discovery_rate(median_run_count(&self.runs)),
            least_distance: self.tests.least_distance,
            power: self.power(),
            outliers: outliers.into_iter().map(|(_, outlier)| outlier).collect(),
            acceptance: Vec::new(),
            associations: self.facts.associations(&is_outlier),
            differing_facts: self.facts.differing(),
            series: self.distributions(),
            not_tested: self.not_tested(),
            deviations: self.deviations(&order),
        }
    }

    /// The findings of a host.
    pub fn findings_of(&self, host: usize) -> impl Iterator<Item = &Finding> {
        self.tests.findings.iter().filter(move |finding| finding.candidate.cell.host == host)
    }

    /// A host, if anything of it is out.
    pub fn outlier(&self, host: usize) -> Option<OutlierHost> {
        let mut figures: Vec<(usize, OutlierFigure)> = Vec::new();
        let mut families: Vec<OutlierFamily> = Vec::new();
        // The series that are out or shifted with a family that is.
        let mut shifted: BTreeMap<usize, f64> = BTreeMap::new();
        for finding in self.findings_of(host) {
            match finding.test.checked_sub(self.series.len()) {
                None => {
                    let better = self.input.series[finding.test].metric.better;
                    shifted.insert(finding.test, worse_share(finding.candidate.cell.log_ratio.exp(), better));
                    figures.push((finding.test, self.figure(finding)));
                }
                Some(index) => {
                    let members = self.shifted_series(&self.families[index].0, finding.candidate.cell);
                    families.push(self.family(&self.families[index].0, finding, &members));
                    shifted.extend(members);
                }
            }
        }
        let facts = self.facts.odd_facts(host, &self.runs.is_peer);
        if figures.is_empty() && families.is_empty() && facts.is_empty() {
            return None;
        }
        figures.indirect_sort_by(|a, b| b.1.distance.abs().total_cmp(&a.1.distance.abs()));
        families.indirect_sort_by(|a, b| b.distance.abs().total_cmp(&a.distance.abs()));
        let areas = self.area_findings(host, &shifted, &figures);
        let input = &self.input.hosts[self.group.hosts[host]];
        let peers = self.runs.is_peer.iter().filter(|is_peer| **is_peer).count() - usize::from(self.runs.is_peer[host]);
        let line = outlier_line(&input.label, peers, &areas, &facts);
        let figures: Vec<OutlierFigure> = figures.into_iter().map(|(_, figure)| figure).collect();
        Some(OutlierHost {
            label: input.label.clone(),
            host: input.host.clone(),
            runs: self.runs.ranges[host].len(),
            peers,
            line,
            figures,
            families,
            facts,
        })
    }

    fn figure(&self, finding: &Finding) -> OutlierFigure {
        let (series, Cell { host, distance, log_ratio, .. }) =
            (&self.input.series[finding.test], finding.candidate.cell);
        let range = self.runs.ranges[host].clone();
        let values: Vec<f64> =
            series.values[range].iter().map(|&value| f64::from(value)).filter(|value| *value > 0.0).collect();
        let value = median(&values);
        OutlierFigure {
            metric: series.metric,
            case: series.case.clone(),
            value,
            range: [f64::min, f64::max].map(|pick| values.iter().copied().reduce(pick).unwrap_or(value)),
            peers: value / log_ratio.exp(),
            ratio: log_ratio.exp(),
            distance,
            p_value: finding.p_value,
            counted_chance: finding.candidate.counted_chance,
        }
    }

    fn family(&self, family: &Family, finding: &Finding, shifted: &[(usize, f64)]) -> OutlierFamily {
        let Cell { host, distance, log_ratio, .. } = finding.candidate.cell;
        let shares: Vec<f64> = shifted.iter().map(|(_, share)| *share).collect();
        OutlierFamily {
            family: family.name,
            figures: family.series.iter().filter(|&&index| self.cell(index, host).is_some()).count(),
            shifted: shifted.len(),
            worse_by: if shares.is_empty() { log_ratio.exp() - 1.0 } else { median(&shares) },
            distance,
            p_value: finding.p_value,
            counted_chance: finding.candidate.counted_chance,
        }
    }

    /// The series of a family that are off by the threshold in its direction, each with the share by which it is worse.
    fn shifted_series(&self, family: &Family, whole: Cell) -> Vec<(usize, f64)> {
        let share = |&index: &usize| {
            let better = self.input.series[index].metric.better;
            let log_ratio = self.cell(index, whole.host)?.log_ratio;
            let is_alike = worse_sign(better) * log_ratio * whole.log_ratio > 0.0;
            let share = worse_share(log_ratio.exp(), better);
            (is_alike && share.abs() >= self.threshold).then_some((index, share))
        };
        family.series.iter().filter_map(share).collect()
    }

    fn cell(&self, series: usize, host: usize) -> Option<&Cell> {
        let cells = &self.series[series].as_ref()?.cells;
        cells.binary_search_by_key(&host, |cell| cell.host).ok().map(|index| &cells[index])
    }

    /// What is out, by area and direction.
    fn area_findings<'f>(
        &'f self,
        host: usize,
        shifted: &BTreeMap<usize, f64>,
        figures: &'f [(usize, OutlierFigure)],
    ) -> Vec<AreaFindings<'f>> {
        let mut by_area: BTreeMap<(&str, bool), Vec<(usize, f64)>> = BTreeMap::new();
        for (&index, &share) in shifted {
            let area = self.input.series[index].metric.area();
            by_area.entry((area, share > 0.0)).or_default().push((index, share));
        }
        let mut areas: Vec<AreaFindings<'f>> = Vec::new();
        for ((area, _), members) in by_area {
            let metric_of = |index: usize| -> &Metric { &self.input.series[index].metric };
            let first = metric_of(members[0].0).id;
            let metric = members.iter().all(|(index, _)| metric_of(*index).id == first).then(|| first.as_str());
            let is_counted = |index: usize| match metric {
                Some(metric) => metric_of(index).id == *metric,
                None => metric_of(index).area() == area,
            };
            let total =
                (0..self.series.len()).filter(|&index| is_counted(index) && self.cell(index, host).is_some()).count();
            let shares: Vec<f64> = members.iter().map(|(_, share)| *share).collect();
            let is_member = |index: usize| members.iter().any(|(member, _)| *member == index);
            areas.push(AreaFindings {
                area,
                metric,
                shifted: members.len(),
                total,
                worse_by: median(&shares),
                is_speed: members.iter().all(|(index, _)| is_speed(metric_of(*index).unit)),
                figures: figures.iter().filter(|(index, _)| is_member(*index)).map(|(_, figure)| figure).collect(),
            });
        }
        areas.indirect_sort_by_key(|area| std::cmp::Reverse(area.shifted));
        areas
    }

    fn runs_of_host(&self) -> [usize; 3] {
        let mut counts: Vec<usize> = self.runs.ranges.iter().map(ExactSizeIterator::len).collect();
        counts.sort_unstable();
        [counts[0], median_run_count(&self.runs), counts[counts.len() - 1]]
    }

    /// What can be told with so many hosts and runs.
    fn power(&self) -> String {
        let (hosts, [_, runs, _]) = (self.group.hosts.len(), self.runs_of_host());
        let share = share_text(self.threshold);
        let few = "These are too few figures to say how far hosts may be apart: no host can be out by one.";
        let Some(distance) = self.tests.least_distance else { return few.to_owned() };
        if runs == 1 {
            return format!(
                "With {hosts} hosts and one run of each, a figure alone names no host: a run in a rare slow state looks like a slow host. Whole \
                 metrics and areas do from {distance:.1} times the spread between hosts on, and from {share}. To tell slow hosts from slow runs \
                 needs two runs of each."
            );
        }
        let reach = format!(
            "With {hosts} hosts and {runs} runs of each, a single figure is out from {distance:.1} times the spread between hosts on, and from \
             {share}; whole metrics and areas are out from less."
        );
        let total: usize = self.runs.ranges.iter().map(ExactSizeIterator::len).sum();
        let least_chance = (-self.runs.log_factorials.log_choose(total, runs)).exp();
        let is_shape_open = least_chance * self.tests.tests as f64 > false_discovery_rate(runs);
        reach
            + if is_shape_open {
                " All runs of a host that is out lie beyond nearly all runs of its peers; more runs of each would also bound noise of any shape."
            } else {
                " All runs of a host that is out lie so far beyond those of its peers that noise of any shape is ruled out."
            }
    }

    fn not_tested(&self) -> Vec<String> {
        let count = self.series.iter().filter(|cells| cells.is_none()).count();
        let has_value = |index: usize| {
            let values = &self.input.series[index].values;
            self.runs.ranges.iter().any(|range| values[range.clone()].iter().any(|value| value.is_finite()))
        };
        let measured = (0..self.series.len()).filter(|&index| self.series[index].is_none() && has_value(index)).count();
        match (count, measured) {
            (_, 0) => Vec::new(),
            (_, 1) => vec![format!("1 figure has positive values on fewer than {MIN_HOSTS} hosts")],
            (_, measured) => vec![format!("{measured} figures have positive values on fewer than {MIN_HOSTS} hosts")],
        }
    }

    fn distributions(&self) -> Vec<SeriesDistribution> {
        let label = |host: usize| self.input.hosts[self.group.hosts[host]].label.clone();
        let mut distributions = Vec::new();
        for (series, cells) in self.input.series.iter().zip(&self.series) {
            let Some(cells) = cells else { continue };
            let value_of = |cell: &Cell| {
                let values = series.values[self.runs.ranges[cell.host].clone()].iter().map(|&value| f64::from(value));
                (cell.host, median(&values.filter(|value| *value > 0.0).collect::<Vec<f64>>()))
            };
            let peers = cells.cells.iter().filter(|cell| self.runs.is_peer[cell.host]);
            let hosts: Vec<(usize, f64)> = peers.map(value_of).collect();
            let by_value = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
            let (Some(lowest), Some(highest)) = (hosts.iter().min_by(by_value), hosts.iter().max_by(by_value)) else {
                continue;
            };
            let Some(sorted) = Sorted::new(hosts.iter().map(|(_, value)| *value).collect()) else { continue };
            let run_count = |&(host, _): &(usize, f64)| {
                series.values[self.runs.ranges[host].clone()].iter().filter(|value| **value > 0.0).count()
            };
            distributions.push(SeriesDistribution {
                metric: series.metric,
                case: series.case.clone(),
                hosts: hosts.len(),
                runs: hosts.iter().map(run_count).sum(),
                median: sorted.median(),
                quartiles: [0.25, 0.75].map(|share| sorted.quantile(share)),
                lowest: (label(lowest.0), lowest.1),
                highest: (label(highest.0), highest.1),
                between_hosts: cells.between_hosts,
                between_runs: cells.between_runs,
            });
        }
        distributions
    }

    fn deviations(&self, outliers: &[usize]) -> Deviations {
        let mut metrics: Vec<(Name, Vec<usize>)> = Vec::new();
        for (index, series) in self.input.series.iter().enumerate().filter(|(index, _)| self.series[*index].is_some()) {
            match metrics.last_mut().filter(|(id, _)| *id == series.metric.id) {
                Some((_, members)) => members.push(index),
                None => metrics.push((series.metric.id, vec![index])),
            }
        }
        let others = (0..self.group.hosts.len()).filter(|host| !outliers.contains(host));
        let order: Vec<usize> = outliers.iter().copied().chain(others).collect();
        let share_of = |host: usize, members: &[usize]| {
            let share = |&index: &usize| {
                let ratio = self.cell(index, host)?.log_ratio.exp();
                Some(worse_share(ratio, self.input.series[index].metric.better))
            };
            let shares: Vec<f64> = members.iter().filter_map(share).collect();
            if shares.is_empty() { f32::NAN } else { median(&shares) as f32 }
        };
        let row = |&host: &usize| metrics.iter().map(|(_, members)| share_of(host, members)).collect();
        Deviations {
            hosts: order.iter().map(|&host| self.input.hosts[self.group.hosts[host]].label.clone()).collect(),
            outliers: outliers.len(),
            worse_by: order.iter().map(row).collect(),
            metrics: metrics.into_iter().map(|(id, _)| id).collect(),
        }
    }
}

/// The median number of runs of a host.
fn median_run_count(runs: &GroupRuns) -> usize {
    let mut counts: Vec<usize> = runs.ranges.iter().map(ExactSizeIterator::len).collect();
    counts.sort_unstable();
    counts[counts.len() / 2]
}

fn positive_log(value: f32) -> Option<f64> {
    (value > 0.0 && value.is_finite()).then(|| f64::from(value).ln())
}
