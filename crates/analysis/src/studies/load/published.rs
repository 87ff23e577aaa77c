//! The published study of a file server, judged from its capacities alone, compared with what was seen.

use kelvin_core::IndirectSort;
use kelvin_reference::published::{PublishedServerCase, ServerStudyFile};

use super::knee::KNEE_SHARE;
use super::next_limit;
use super::*;

/// How far the capacities may be from what was seen to count as the same, as a share.
const MAX_PUBLISHED_GAP: f64 = 0.05;
/// Most users of a published case by far.
const MAX_USERS: usize = 1000;

/// The study of the published cases: what their capacities predict before anything is measured.
pub(crate) fn published_study(file: &ServerStudyFile) -> Study {
    let conclusions = file
        .case
        .iter()
        .flat_map(|case| PublishedCaseModel::from_case(file, case))
        .flat_map(|model| model.conclusions());
    let design = format!(
        "{}. Nothing was measured here: the asymptotic bounds and the exact mean value analysis of a closed network follow from \
         the published capacities of disk and network; a file that is always the same comes from the page cache, and needs the \
         network only.",
        file.machine.title
    );
    let conclusions = conclusions.map(|conclusion| conclusion.stated).collect();
    Study { id: super::LOAD_STUDY, design, conclusions, ..Study::default() }
}

/// A published case with the network that its capacities are.
struct PublishedCaseModel<'f> {
    file: &'f ServerStudyFile,
    case: &'f PublishedServerCase,
    /// The stations of a request, with their requests a second, the slowest first.
    capacities: Vec<(Resource, f64)>,
    network: ClosedNetwork,
}

impl<'f> PublishedCaseModel<'f> {
    /// `None` of a case whose capacities were not published.
    fn from_case(file: &'f ServerStudyFile, case: &'f PublishedServerCase) -> Option<Self> {
        let disk = (!case.is_fixed()).then_some((Resource::Disk, file.capacity.disk_requests_per_s));
        let link = (Resource::Link, file.capacity.network_requests_per_s);
        let mut capacities: Vec<(Resource, f64)> = disk.into_iter().chain([link]).collect();
        capacities.indirect_sort_by(|a, b| a.1.total_cmp(&b.1));
        let stations = capacities.iter().map(|(_, capacity)| Station::queue(1.0 / capacity)).collect();
        let network = ClosedNetwork::new(stations, case.think_seconds).ok()?;
        Some(Self { file, case, capacities, network })
    }

    fn fixed_case(&self) -> Case {
        let pattern = if self.case.is_fixed() { RequestPattern::Fixed } else { RequestPattern::Random };
        Case::new().with_word(pattern).with_number(THINK_TIME, (self.case.think_seconds * 1e3).round() as u64)
    }

    fn test(&self) -> ClaimTest {
        let think = self.case.think_seconds;
        let capacity_text = |&(resource, capacity): &(Resource, f64)| {
            format!("{} {}", resource_name(resource_id(resource)), number(capacity))
        };
        let think_text = match think {
            0.0 => "no".to_owned(),
            seconds => format!("{} of", value_text(seconds * 1e9, Unit::Nanoseconds)),
        };
        let text = format!(
            "asymptotic bounds and exact mean value analysis of a closed network from requests/s of each alone ({}) and {think_text} \
             think time",
            self.capacities.iter().map(capacity_text).collect::<Vec<_>>().join(", ")
        );
        let capacities =
            self.capacities.iter().map(|&(resource, capacity)| (resource_id(resource), capacity)).collect();
        ClaimTest::new(TestEvidence::ClosedNetwork { capacities, think }, text, None)
    }

    fn conclusions(&self) -> Vec<LoadConclusion> {
        let next = self.next_limit().map(|claim| next_limit::conclusion(claim, Some(true), self.test()));
        let read = self.disk_amplification();
        let read = read.map(|times| next_limit::amplification(self.fixed_case(), times, self.test()));
        [self.limit(), next, read].into_iter().flatten().collect()
    }

    /// The limit, and whether it is what was seen: the same resource, a knee that is the same against what was seen, a capacity that
    /// is near it.
    fn limit(&self) -> Option<LoadConclusion> {
        let ((limit, capacity), observed) = (*self.capacities.first()?, self.case.saturation(self.file)?);
        let knee_users = |throughput: f64| {
            self.network.min_customers_for(KNEE_SHARE * throughput, MAX_USERS).map(|users| users as u64)
        };
        let claim = PublishedLoadCase {
            name: self.case.name.clone(),
            limit: resource_id(limit),
            limit_published: match self.case.bottleneck.as_str() {
                "network" => resource_id(Resource::Link),
                "disk" => resource_id(Resource::Disk),
                _ => Name::new("?"),
            },
            capacity,
            saturation_published: observed,
            saturation_of_others: self.case.saturation_requests_per_s.is_none(),
            crossing: self.network.saturation_point(),
            knee: knee_users(capacity)?,
            knee_by_published_saturation: knee_users(observed)?,
            knee_published: self.case.knee_clients,
        };
        let is_near = (observed / capacity - 1.0).abs() <= MAX_PUBLISHED_GAP;
        let is_as_observed = claim.limit == claim.limit_published
            && claim.knee_by_published_saturation == claim.knee_published
            && is_near;
        let PublishedLoadCase { name, knee, knee_by_published_saturation, knee_published, .. } = &claim;
        let [limit, published_limit] = [claim.limit, claim.limit_published].map(resource_name);
        let [rate, observed_text, crossing] = [capacity, observed, claim.crossing].map(number);
        let source_note = if claim.saturation_of_others { " in its other cases" } else { "" };
        let text = format!(
            "{name}: the capacities give what was seen: the {limit} as the limit, at {rate} requests/s; the study named the {published_limit}, and saw \
             {observed_text}{source_note}. The bounds cross at {crossing} users; by mean value analysis 95 % are reached with {knee}, 95 % of what was seen \
             with {knee_by_published_saturation}; the study saw the knee at {knee_published}"
        );
        Some(LoadConclusion::new(LoadClaim::Published(claim), Some(is_as_observed), self.test(), text))
    }

    /// A faster network until the disk is met: by the disk's capacity, and by what it read.
    fn next_limit(&self) -> Option<NextLimitClaim> {
        let [(limit, present), (next, capacity)] = *self.capacities.as_slice() else { return None };
        let actual_limit = capacity / self.disk_amplification()?.value;
        let projection = |throughput: f64| LimitProjection { factor: throughput / present, throughput };
        Some(NextLimitClaim {
            fixed: self.fixed_case(),
            limit: resource_id(limit),
            next: resource_id(next),
            as_measured: projection(actual_limit),
            from_capacity: Some(projection(capacity)),
        })
    }

    /// What the disk read over what was served, where the disk's reading was published with its mean.
    fn disk_amplification(&self) -> Option<Estimate> {
        let served_bytes = self.case.saturation(self.file)? * self.file.machine.file_bytes;
        Some(Estimate::exact(self.case.disk_read_bytes_per_s? / served_bytes))
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Claim, Conclusion};

    use super::*;
    use kelvin_reference::published::published_server;

    fn claims() -> Vec<Conclusion> {
        published_study(published_server()).conclusions.into_iter().map(|conclusion| conclusion.conclusion).collect()
    }

    #[test]
    fn capacities_predict_published_limits() {
        let cases: Vec<(PublishedLoadCase, Option<bool>)> = claims()
            .into_iter()
            .filter_map(|conclusion| match conclusion.claim {
                Claim::Load(LoadClaim::Published(published)) => Some((published, conclusion.holds)),
                _ => None,
            })
            .collect();
        let values_of = |quantity: fn(&PublishedLoadCase) -> f64| {
            cases.iter().map(|(case, _)| quantity(case)).collect::<Vec<f64>>()
        };
        let round_to_tenths =
            |values: Vec<f64>| values.into_iter().map(|value| (value * 10.0).round() / 10.0).collect::<Vec<f64>>();
        assert_eq!(values_of(|case| case.capacity), [5.78; 3]);
        assert_eq!(round_to_tenths(values_of(|case| case.crossing)), [1.3, 7.0, 1.0]);
        assert_eq!(values_of(|case| case.knee as f64), [3.0, 10.0, 1.0]);
        assert_eq!(values_of(|case| case.knee_by_published_saturation as f64), [2.0, 10.0, 1.0]);
        assert_eq!(values_of(|case| case.knee_published as f64), [2.0, 10.0, 1.0]);
        assert!(
            cases
                .iter()
                .all(|(case, holds)| case.limit == *"link" && case.limit_published == *"link" && *holds == Some(true))
        );
    }

    #[test]
    fn disk_amplification_makes_it_next_limit() {
        let ratios: Vec<f64> = claims()
            .iter()
            .filter_map(|conclusion| match &conclusion.claim {
                Claim::Load(LoadClaim::Amplification { ratio: times, .. }) if conclusion.holds == Some(true) => {
                    Some(times.value)
                }
                _ => None,
            })
            .collect();
        assert_eq!(ratios.len(), 1);
        assert!((ratios[0] - 2.4).abs() < 0.05, "{ratios:?}");
        let next: Vec<NextLimitClaim> = claims()
            .into_iter()
            .filter_map(|conclusion| match conclusion.claim {
                Claim::Load(LoadClaim::WhatIf(next)) => Some(next),
                _ => None,
            })
            .collect();
        let [next] = next.as_slice() else { panic!("{next:?}") };
        let by_capacity = next.from_capacity.unwrap();
        assert!((by_capacity.throughput - 21.8).abs() < 1e-9 && (by_capacity.factor - 3.77).abs() < 0.01);
        assert!(
            (next.as_measured.factor - 1.6).abs() < 0.05 && (next.as_measured.throughput - 9.06).abs() < 0.05,
            "{next:?}"
        );
    }
}
