//! Laws that tie what was measured, each checked on the data, and the growth of memory.

use super::*;

/// Most that two counts of the same requests or bytes may differ by, as a share.
const MAX_COUNT_GAP: f64 = 0.02;
/// Seconds of each request of which neither end knows whether it was in flight: from one end's time stamps to the other's.
const UNCERTAIN_FLIGHT_SECONDS: f64 = 1e-6;
/// Most that the demand of a request may change from half the knee on, as a share: caches make it change a little.
const MAX_DEMAND_CHANGE: f64 = 0.05;
/// Like `MAX_DEMAND_CHANGE`, of a processor: with more users, calls and wake-ups serve several requests at once.
const MAX_CPU_DEMAND_CHANGE: f64 = 0.25;
/// Share of the requests in flight that were answered in a visit, from which on response times represent all of them.
const MIN_ANSWERED_SHARE: f64 = 0.75;
/// Use from which a demand can be distinguished from what else the resource does.
const MIN_MEASURABLE_USE: f64 = 0.2;

/// A law on the data: how far off it is, and whether it holds; `None` where that is not certain.
#[derive(Clone, Debug)]
pub(crate) struct LawCheckResult {
    pub check: LoadLawCheck,
    pub holds: Option<bool>,
    pub visits: usize,
}

impl LawCheckResult {
    pub fn conclusion(&self) -> LoadConclusion {
        let name = match self.check.law {
            LoadLaw::Little => {
                "Little's law holds: requests in flight at the server are throughput times response time"
            }
            LoadLaw::FlowBalance => {
                "flow balance holds: the bytes that the server sent are those that the client received"
            }
            LoadLaw::Utilisation => {
                "the utilisation law holds: from half the knee on, the fullest resource works as much for a request as at saturation"
            }
        };
        let LoadLawCheck { deviation, tolerance, .. } = &self.check;
        let users = self.check.users.map_or_else(String::new, |users| format!(" with {users} users"));
        let deviation_text = span_text(deviation, signed_percent).replacen(" % ", &format!(" %{users} "), 1);
        let verdict = if self.holds == Some(false) { ", which is too far" } else { "" };
        let text = format!("{name}, to within {}: {deviation_text}{verdict}", percent(*tolerance));
        LoadConclusion::new(LoadClaim::Law(self.check.clone()), self.holds, saturated_test(self.visits), text)
    }

    fn name(&self) -> &'static str {
        match self.check.law {
            LoadLaw::Little => "Little's law",
            LoadLaw::FlowBalance => "flow balance",
            LoadLaw::Utilisation => "utilisation law",
        }
    }
}

/// All of them in a line: `Little's law +0.4 %, flow balance +0.2 %: both hold`, and those that do not, or may not.
pub(super) fn law_summary(laws: &[LawCheckResult]) -> String {
    let with_result = |result: Option<bool>| laws.iter().filter(move |check| check.holds == result);
    let violations = with_result(Some(false)).map(|check| {
        let users = check.check.users.map_or_else(String::new, |count| format!(" with {}", users_text(count)));
        let (deviation, tolerance) = (signed_percent(check.check.deviation.value), percent(check.check.tolerance));
        capitalise(&format!("{} does not hold: {deviation}{users}, and {tolerance} is allowed.", check.name()))
    });
    let law_texts: Vec<String> = with_result(Some(true))
        .map(|check| format!("{} {}", check.name(), signed_percent(check.check.deviation.value)))
        .collect();
    let verdict = match law_texts.len() {
        0 => None,
        1 => Some("holds"),
        2 if laws.len() == 2 => Some("both hold"),
        count if count == laws.len() => Some("all hold"),
        _ => Some("hold"),
    };
    let summary = verdict.map(|verdict| capitalise(&format!("{}: {verdict}.", law_texts.join(", "))));
    let undecided = with_result(None).map(|check| {
        let deviation = span_text(&check.check.deviation, signed_percent);
        capitalise(&format!("{} {deviation}: not certain.", check.name()))
    });
    violations.chain(summary).chain(undecided).collect::<Vec<String>>().join(" ")
}

/// The laws whose quantities were measured.
pub(crate) fn check_laws(sweep: &Sweep, saturated: Option<&SaturatedSweep<'_>>) -> Vec<LawCheckResult> {
    let services =
        sweep.loads.iter().flat_map(|load| &load.steps).filter_map(service_time).filter(|&seconds| seconds > 0.0);
    let shortest = services.fold(f64::INFINITY, f64::min);
    let little = LoadStepLaw {
        law: LoadLaw::Little,
        tolerance: MAX_COUNT_GAP + UNCERTAIN_FLIGHT_SECONDS / shortest,
        ratio: &|visit| Some(visit.get(&IN_FLIGHT)? / client_in_flight(visit)?),
    };
    let flow = LoadStepLaw {
        law: LoadLaw::FlowBalance,
        tolerance: MAX_COUNT_GAP,
        ratio: &|visit| Some(visit.get(&SENT_BYTE_RATE)? / visit.get(&RATE)?),
    };
    let checks = [little.check(sweep, |_| true), flow.check(sweep, |_| true), saturated.and_then(check_utilisation)];
    checks.into_iter().flatten().collect()
}

/// Requests in flight by the client's figures: throughput times the time from when a request left. A visit cuts requests off where it
/// begins and where it ends, which that counts whole or not at all: where no more than this lies between them, it is the number of those
/// that the client waited for. So it is too where many wait for all of the visit, which no response time shows.
pub(super) fn client_in_flight(visit: &LoadStep) -> Option<f64> {
    let answered_count = answered_in_flight(visit)?;
    // Where fewer than one is in flight on average, an end still cuts off a whole one.
    let cut = answered_count.max(1.0) / visit.throughput / visit.seconds;
    let is_consistent = |waited_for: &f64| {
        answered_count < MIN_ANSWERED_SHARE * waited_for || (answered_count / waited_for - 1.0).abs() <= cut
    };
    Some(visit.get(&CLIENT_IN_FLIGHT).filter(is_consistent).unwrap_or(answered_count))
}

/// Requests that the client waited for and that were not answered in the visit, on average; by chance of its ends less than none.
pub(crate) fn unanswered_in_flight(visit: &LoadStep) -> Option<f64> {
    Some(visit.get(&CLIENT_IN_FLIGHT)? - answered_in_flight(visit)?)
}

/// Requests in flight among those that were answered.
fn answered_in_flight(visit: &LoadStep) -> Option<f64> {
    Some(visit.throughput * service_time(visit)?)
}

/// Mean seconds from when a request left until its answer had come. A response time has also what the generator was late by, which no
/// server saw; of older runs nothing else is known.
pub(super) fn service_time(visit: &LoadStep) -> Option<f64> {
    Some(visit.get(&SERVICE).or_else(|| visit.get(&RESPONSE))? / 1e9)
}

/// The laws that do not hold.
pub(crate) fn violated_laws(laws: &[LawCheckResult]) -> Vec<LoadLaw> {
    laws.iter().filter(|check| check.holds == Some(false)).map(|check| check.check.law).collect()
}

/// U = X D with one D: that of the fullest resource from half the knee on, over that at saturation. With more users than the knee as well:
/// where use grows and throughput does not, the resource is not what limits. The busiest of several threads of the generator has no such D:
/// its part of the users changes with their number.
fn check_utilisation(saturated: &SaturatedSweep<'_>) -> Option<LawCheckResult> {
    let resource: Resource = saturated.fullest_by_group().first()?.resource;
    if resource == Resource::Generator && saturated.sweep.servers(resource).is_some_and(|threads| threads > 1.0) {
        return None;
    }
    let demand = |visit: &LoadStep| Some(visit.resource_use.get(&resource)? / visit.throughput);
    let saturation_demand = mean(&saturated.values(demand));
    let is_measurable =
        |visit: &LoadStep| visit.resource_use.get(&resource).is_some_and(|&share| share >= MIN_MEASURABLE_USE);
    let ratio =
        move |visit: &LoadStep| demand(visit).filter(|_| is_measurable(visit)).map(|demand| demand / saturation_demand);
    let tolerance = match resource.group() {
        ResourceGroup::ServerCpu | ResourceGroup::Client => MAX_CPU_DEMAND_CHANGE,
        ResourceGroup::Disk | ResourceGroup::Link | ResourceGroup::Workers => MAX_DEMAND_CHANGE,
    };
    let law = LoadStepLaw { law: LoadLaw::Utilisation, tolerance, ratio: &ratio };
    let knee = saturated.saturation.knee.users;
    law.check(saturated.sweep, |load| 2 * load.users >= knee)
}

/// A law: one side over the other in a visit, where it has both.
struct LoadStepLaw<'l> {
    law: LoadLaw,
    tolerance: f64,
    ratio: &'l dyn Fn(&LoadStep) -> Option<f64>,
}

impl LoadStepLaw<'_> {
    /// All visits together; or one number of users alone, where the law certainly does not hold.
    fn check(&self, sweep: &Sweep, is_included: impl Fn(&UserLoad) -> bool) -> Option<LawCheckResult> {
        let relative_error = |visit: &LoadStep| Some((self.ratio)(visit)? - 1.0).filter(|error| error.is_finite());
        let loads = sweep.loads.iter().filter(|load| is_included(load));
        let loads: Vec<(u64, Vec<f64>)> = loads.map(|load| (load.users, load.values(relative_error))).collect();
        let values: Vec<f64> = loads.iter().flat_map(|(_, values)| values.iter().copied()).collect();
        let overall = mean_estimate(&values)?;
        // Each alone has an interval that holds jointly with all others.
        let level = bonferroni_level(loads.len());
        let estimates = loads
            .iter()
            .filter_map(|(users, values)| Some((*users, interval_estimate(UncertainValue::mean(values)?, level))));
        let is_outside = |(_, estimate): &(u64, Estimate)| estimate.is_within(self.tolerance) == Some(false);
        let worst = estimates.filter(is_outside).max_by(|(_, a), (_, b)| a.value.abs().total_cmp(&b.value.abs()));
        let deviation = worst.map_or(overall, |(_, estimate)| estimate);
        let holds = deviation.is_within(self.tolerance);
        let check = LoadLawCheck {
            law: self.law,
            fixed: sweep.fixed.clone(),
            deviation,
            users: worst.map(|(users, _)| users),
            tolerance: self.tolerance,
        };
        Some(LawCheckResult { check, holds, visits: values.len() })
    }
}

/// How a figure changes over time while the number of users is the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FigureGrowth {
    /// In the metric's unit a second.
    pub per_second: Estimate,
    pub visits: usize,
    /// Seconds from the first visit to the last.
    pub seconds: f64,
}

/// Least squares with one slope over time and a level for each number of users, of figures at their times. `None` where no number
/// of users was visited again, or only once.
pub(super) fn common_slope(mut loads: Vec<Vec<(f64, f64)>>) -> Option<FigureGrowth> {
    loads.retain(|points| points.len() > 1);
    let centred = loads.iter().flat_map(|points| {
        let mean_of = |part: fn(&(f64, f64)) -> f64| mean(&points.iter().map(part).collect::<Vec<f64>>());
        let (time, value) = (mean_of(|point| point.0), mean_of(|point| point.1));
        points.iter().map(move |point| (point.0 - time, point.1 - value))
    });
    let centred: Vec<(f64, f64)> = centred.collect();
    let degrees = centred.len().checked_sub(loads.len() + 1).filter(|&degrees| degrees > 0)? as f64;
    let time_squares: f64 = centred.iter().map(|(time, _)| time * time).sum();
    if time_squares <= 0.0 {
        return None;
    }
    let value = centred.iter().map(|(time, value)| time * value).sum::<f64>() / time_squares;
    let residual: f64 = centred.iter().map(|(time, figure)| (figure - value * time).powi(2)).sum();
    let spread = VarianceEstimate { variance: residual / degrees / time_squares, degrees };
    let (first, last) = min_max(loads.iter().flatten().map(|(time, _)| *time))?;
    let per_second = interval_estimate(UncertainValue::from_variance(value, spread), CONFIDENCE_LEVEL);
    Some(FigureGrowth { per_second, visits: centred.len(), seconds: last - first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_step_ends_cut_off_requests() {
        // One user who thinks for 100 ms: 20 requests of 1 ms in two seconds, of which one began before.
        let visit = |answered: f64, waited_for: f64| {
            let figures = [(&SERVICE, 1e6 * answered), (&CLIENT_IN_FLIGHT, 0.01 * waited_for)];
            LoadStep::from_figures(2.0, 10.0, &figures)
        };
        let at_client = |visit: &LoadStep| client_in_flight(visit).unwrap();
        assert!((at_client(&visit(1.04, 1.0)) - 0.01).abs() < 1e-12, "what was waited for counts");
        assert!((at_client(&visit(1.2, 1.0)) - 0.012).abs() < 1e-12, "no end of a visit explains that much");
    }
}
