//! What is known of other machines than the one at hand: how far their figures lay from formulas, and the figures for which there is
//! no formula. The closer a machine is related, the better it predicts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use kelvin_core::units::value_text;
use kelvin_core::{Calibration, Case, Input, Machine, Metric, Name, NoPrediction, Prediction, PredictionBasis, Unit};
use kelvin_stats::{MachinePrediction, MachineRelation, mean};

mod evaluation;
mod reference_data;
#[cfg(test)]
mod tests;
mod variance_model;

pub use reference_data::{
    HeadlineTable, Proxy, ProxyCases, ReferenceHeadline, ReferenceRecord, ReferenceRules, SizedCases,
};
use variance_model::{FormulaErrors, MetricGroup, VarianceModel, metric_group};

/// Figures of one machine by metric, as natural logarithms.
type LogValues = HashMap<Name, Vec<(Case, f64)>>;

/// How far figures of one machine lie from their predictions, by metric and name of the formula: measured over predicted, as natural logarithms.
type LogErrors = HashMap<(Name, Cow<'static, str>), Vec<(Case, f64)>>;

/// What the machine at hand measured of a metric at a case.
pub(crate) type MeasuredValues<'a> = &'a dyn Fn(&Metric, &Case) -> Option<f64>;

/// Another machine.
#[derive(Clone, Debug)]
struct ReferenceMachine {
    name: String,
    identity: CpuIdentity,
    /// CPUs that its runs could use.
    cpus: usize,
    /// Its figures.
    log_values: LogValues,
    log_errors: LogErrors,
    /// Half-widths of the intervals of its figures, as shares of them.
    half_widths: LogValues,
}

/// By what machines are related.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CpuIdentity {
    architecture: Name,
    vendor: Option<String>,
    /// Family and model of the processor.
    model: (Option<u32>, Option<u32>),
}

impl CpuIdentity {
    fn from_machine(machine: &Machine) -> Self {
        let cpu = &machine.cpu;
        let model = (cpu.family.get().copied(), cpu.model.get().copied());
        Self { architecture: machine.architecture, vendor: cpu.vendor.get().cloned(), model }
    }

    /// Processors of one model, of one vendor, or neither.
    fn relation(&self, other: &Self) -> MachineRelation {
        match self {
            Self { model: (_, Some(_)), .. } if self == other => MachineRelation::Kind,
            Self { architecture, vendor: Some(vendor), .. }
                if (*architecture, Some(vendor)) == (other.architecture, other.vendor.as_ref()) =>
            {
                MachineRelation::Group
            }
            _ => MachineRelation::Other,
        }
    }
}

/// What other machines predict.
#[derive(Clone, Debug)]
pub struct ReferenceMachines {
    machines: Vec<ReferenceMachine>,
    /// By what the machine at hand is related to them.
    target: CpuIdentity,
    proxies: Vec<Proxy>,
    /// The cases on the machine at hand of metrics whose sizes follow it.
    sizes: SizedCases,
    /// Metrics whose cases name parts of the machine.
    part_metrics: Vec<Name>,
    takes_all_cpus: fn(&Metric, &Case) -> bool,
    has_modes: fn(&Metric, &Case) -> bool,
    /// How far figures lie from their formulas.
    formula_variances: VarianceModel,
    /// How far figures lie from those of other machines scaled by their proxies, and from those that nothing else predicts.
    proxy_variances: VarianceModel,
    unmodelled_variances: VarianceModel,
    /// Half of a range, in standard deviations.
    range_deviations: f64,
}

impl ReferenceMachines {
    /// The same prediction in the range that figures of its kind have about their formula on these machines, and so much wider as the
    /// inputs are uncertain (`inputs`: half of the range that follows from them, as a natural logarithm). Where no machine predicts, and of
    /// what has two modes on each, the formula's own range stays. What is stated as the most is never raised.
    pub(crate) fn calibrate(
        &self,
        mut prediction: Prediction,
        metric: &Metric,
        case: &Case,
        inputs: f64,
    ) -> Prediction {
        if (self.has_modes)(metric, case) {
            return prediction;
        }
        let error =
            self.formula_error(metric, case, prediction.formula_name.clone()).filter(|_| prediction.value > 0.0);
        let Some((range, calibration)) = error else { return prediction };
        let half = (self.range_deviations * range.std).hypot(inputs);
        let [low, value, high] = [-half, 0.0, half]
            .map(|distance| clamp_to_physical_range(prediction.value * (range.mean + distance).exp(), metric));
        let (limit, range_end) =
            prediction.ceiling.map_or((f64::INFINITY, f64::INFINITY), |ceiling| (ceiling.limit, ceiling.range_end));
        let [low, value, high] = [low.min(limit), value.min(limit), high.min(range_end)];
        prediction.derivation.push_str(&format!(
            "; on {} {:.2} to {:.2} times that: {}",
            match calibration.machines {
                1 => "one other machine".to_owned(),
                several => format!("{several} other machines"),
            },
            calibration.low,
            calibration.high,
            value_text(value, metric.unit)
        ));
        Prediction { value, low, high, calibration: Some(calibration), ..prediction }
    }

    /// How far a figure may lie from its formula: a metric may be predicted by one formula at one case and by another at the next.
    fn formula_error(
        &self,
        metric: &Metric,
        case: &Case,
        formula: Cow<'static, str>,
    ) -> Option<(MachinePrediction, Calibration)> {
        let key = (metric.id, formula);
        let errors = formula_errors(self.machines.iter(), &key)?;
        let range =
            formula_error_interval(&self.formula_variances, &metric_group(metric), &self.target, (&errors, case))?;
        let half = self.range_deviations * range.std;
        let [low, high] = [-half, half].map(|distance| (range.mean + distance).exp());
        Some((range, Calibration { low, high, figures: errors.value_count(), machines: errors.machines() }))
    }

    fn proxy(&self, metric: &Metric, case: &Case) -> Option<&Proxy> {
        self.proxies.iter().find(|proxy| proxy.applies_to(metric, case))
    }

    /// Whether the proxy of a metric at a case predicts better than its formula.
    pub fn prefers_proxy(&self, metric: &Metric, case: &Case) -> bool {
        self.proxy(metric, case).is_some_and(|proxy| proxy.is_preferred)
    }

    /// A prediction of a figure by what it is on these machines, where there is no formula; or why there is none.
    pub(crate) fn predict_from_peers(
        &self,
        (machine, measured): (&Machine, MeasuredValues<'_>),
        metric: &Metric,
        case: &Case,
        reason: NoPrediction,
    ) -> Result<Prediction, NoPrediction> {
        let scales_with = match self.proxy(metric, case) {
            Some(Proxy { scales_with: None, .. }) => return Err(reason),
            proxy => proxy.and_then(|proxy| proxy.scales_with),
        };
        let mut peers = self.peer_values(machine, metric, case);
        let mut proxy = None;
        if let Some((proxy_metric, cases)) = scales_with {
            let scaled_peers =
                peers.iter().filter_map(|peer| self.scale_by_proxy(measured, peer, (proxy_metric, cases), case));
            let scaled_peers: Vec<PeerValue<'_>> = scaled_peers.collect();
            if !scaled_peers.is_empty() {
                // By the proxy where any machine has it: a mean of both would be of nothing.
                (peers, proxy) = (scaled_peers, Some(proxy_text(proxy_metric, cases)));
            } else if peers.iter().any(|peer| peer.machine.has_value(proxy_metric.id, cases, case)) {
                // What a run that measured the proxy scales is not predicted unscaled by one that did not: a figure has one prediction.
                let proxy = proxy_text(proxy_metric, cases);
                return Err(NoPrediction::new(format!("it is scaled by {proxy}, which this run did not measure")));
            }
        }
        let model = if proxy.is_some() { &self.proxy_variances } else { &self.unmodelled_variances };
        let values: Vec<(&ReferenceMachine, f64)> =
            peers.iter().map(|peer| (peer.machine, peer.log_value + peer.log_ratio)).collect();
        let Some(range) = next_machine_interval(model, &metric_group(metric), &self.target, &values) else {
            return Err(reason);
        };
        let half = self.range_deviations * range.std;
        let [low, value, high] =
            [-half, 0.0, half].map(|distance| clamp_to_physical_range((range.mean + distance).exp(), metric));
        let mut formula = FORMULA_NAME.to_owned();
        let mut parts: Vec<String> = peers
            .iter()
            .map(|peer| format!("{} on {}", value_text(peer.log_value.exp(), metric.unit), peer.machine.name))
            .collect();
        let mut inputs = Vec::new();
        if let Some(proxy) = &proxy {
            formula.push_str(&format!(" x {proxy} on this machine over theirs"));
            for (part, peer) in parts.iter_mut().zip(&peers) {
                let ratio = peer.log_ratio.exp();
                part.push_str(&format!(" x {ratio:.2} by {proxy}"));
                inputs.push(Input {
                    name: format!("{proxy}, this machine over {}", peer.machine.name),
                    value: ratio,
                    unit: Unit::Ratio,
                    source: "measured in this run and on that machine".into(),
                });
            }
        }
        Ok(Prediction {
            value,
            low,
            high,
            basis: PredictionBasis::ReferenceMachines,
            formula,
            inputs,
            derivation: format!("{}; no formula, since {}", parts.join(", "), reason.0),
            sources: Vec::new(),
            calibration: None,
            formula_name: Cow::Borrowed(FORMULA_NAME),
            ceiling: None,
        })
    }

    /// A figure on each of the machines that have it: their names, and its values in the metric's unit.
    pub fn values_on_references(&self, machine: &Machine, metric: &Metric, case: &Case) -> Vec<(&str, f64)> {
        let peers = self.peer_values(machine, metric, case).into_iter();
        peers.map(|peer| (peer.machine.name.as_str(), peer.log_value.exp())).collect()
    }

    /// A figure on each of the machines that predict it for a machine, not scaled.
    fn peer_values(&self, target: &Machine, metric: &Metric, case: &Case) -> Vec<PeerValue<'_>> {
        let is_comparable = |machine: &&ReferenceMachine| {
            machine.cpus == allowed_cpu_count(target) || !(self.takes_all_cpus)(metric, case)
        };
        let machines = self.machines.iter().filter(is_comparable);
        let values = machines.filter_map(|machine| {
            let log_value = self.value_at(machine.log_values.get(&metric.id)?, metric, case)?;
            Some(PeerValue { machine, log_value, log_ratio: 0.0 })
        });
        values.collect()
    }

    /// A figure of another machine at a case, or at the one in its place.
    fn value_at(&self, cases: &[(Case, f64)], metric: &Metric, case: &Case) -> Option<f64> {
        if self.part_metrics.contains(&metric.id) {
            return Some(mean(&cases.iter().map(|(_, value)| *value).collect::<Vec<f64>>()));
        }
        self.sizes.lookup(&metric.id, case, cases)
    }

    /// A figure of another machine scaled by its proxy, if both machines have measured that.
    fn scale_by_proxy<'a>(
        &self,
        measured: MeasuredValues<'_>,
        peer: &PeerValue<'a>,
        (proxy_metric, cases): (&Metric, ProxyCases),
        case: &Case,
    ) -> Option<PeerValue<'a>> {
        let proxy_values = peer.machine.log_values.get(&proxy_metric.id)?;
        let log_measured = |case: &Case| measured(proxy_metric, case).filter(|value| *value > 0.0).map(f64::ln);
        let log_ratio = match cases {
            ProxyCases::SameCase => log_measured(case)? - self.value_at(proxy_values, proxy_metric, case)?,
            ProxyCases::At(_) => {
                let matching_values = proxy_values.iter().filter(|(known_case, _)| cases.includes(case, known_case));
                let ratios: Vec<f64> =
                    matching_values.filter_map(|(case, log_value)| Some(log_measured(case)? - log_value)).collect();
                if ratios.is_empty() {
                    return None;
                }
                mean(&ratios)
            }
        };
        Some(PeerValue { log_ratio, ..*peer })
    }
}

/// The name of a formula that goes by the figure of other machines.
const FORMULA_NAME: &str = "value on other machines";

/// A figure of another machine, and by how much its proxy is larger on the machine at hand: natural logarithms.
struct PeerValue<'a> {
    machine: &'a ReferenceMachine,
    log_value: f64,
    log_ratio: f64,
}

/// The proxy by its name: `os.switch.cost (mechanism=pipe task=process)`.
fn proxy_text(proxy_metric: &Metric, cases: ProxyCases) -> String {
    match cases {
        ProxyCases::At(words @ [_, ..]) => {
            format!("{} ({})", proxy_metric.id, words.iter().fold(Case::new(), |case, word| case.with_word(*word)))
        }
        _ => proxy_metric.id.to_string(),
    }
}

/// A figure within what is physically possible.
fn clamp_to_physical_range(value: f64, metric: &Metric) -> f64 {
    let value = metric.floor.map_or(value, |floor| value.max(floor));
    metric.ceiling.map_or(value, |ceiling| value.min(ceiling))
}

/// CPUs that a run may use.
fn allowed_cpu_count(machine: &Machine) -> usize {
    machine.topology.allowed.get().map_or(1, Vec::len)
}

impl ReferenceMachine {
    /// Whether a formula predicts a metric at a case.
    fn has_formula(&self, metric: Name, case: &Case) -> bool {
        self.log_errors
            .iter()
            .any(|((error_metric, _), cases)| *error_metric == metric && value_at_case(cases, case).is_some())
    }

    /// Whether one of the cases of a figure's proxy was measured.
    fn has_value(&self, metric: Name, proxy_cases: ProxyCases, case: &Case) -> bool {
        let is_any = |cases: &Vec<(Case, f64)>| match proxy_cases {
            ProxyCases::SameCase => true,
            ProxyCases::At(_) => cases.iter().any(|(measured_case, _)| proxy_cases.includes(case, measured_case)),
        };
        self.log_values.get(&metric).is_some_and(is_any)
    }

    /// By how much a metric is larger than on another machine, at all cases of both: natural logarithms.
    fn log_ratios<'a>(&'a self, other: &'a Self, metric: Name) -> Vec<(&'a Case, f64)> {
        let [own_values, values] =
            [self, other].map(|machine| machine.log_values.get(&metric).map_or(&[][..], Vec::as_slice));
        own_values.iter().filter_map(|(case, value)| Some((case, value - value_at_case(values, case)?))).collect()
    }
}

/// The errors of a formula of a metric on these machines.
fn formula_errors<'a>(
    machines: impl Iterator<Item = &'a ReferenceMachine>,
    formula: &(Name, Cow<'static, str>),
) -> Option<FormulaErrors<'a>> {
    FormulaErrors::new(machines.filter_map(|machine| Some((machine, machine.log_errors.get(formula)?.as_slice()))))
}

/// How far figures of these machines lie from their formulas.
fn formula_variances(metrics: &BTreeMap<Name, &'static Metric>, machines: &[&ReferenceMachine]) -> VarianceModel {
    let formulas: BTreeSet<_> = machines.iter().flat_map(|machine| machine.log_errors.keys()).collect();
    let errors = formulas.into_iter().filter_map(|formula| {
        let errors = formula_errors(machines.iter().copied(), formula)?;
        Some((metric_group(metrics.get(&formula.0)?), errors))
    });
    VarianceModel::from_formulas(errors)
}

/// How far a figure of a machine of this identity lies from its formula, by how far those of others do.
fn formula_error_interval(
    model: &VarianceModel,
    group: &MetricGroup,
    identity: &CpuIdentity,
    (errors, case): (&FormulaErrors<'_>, &Case),
) -> Option<MachinePrediction> {
    let MachinePrediction { mean, std } = next_machine_interval(model, group, identity, &errors.values_at(case))?;
    Some(MachinePrediction { mean, std: std * model.relative_variance(group, errors)?.sqrt() })
}

/// The figure of a group of metrics on one more machine, of this identity, by those of others.
fn next_machine_interval(
    model: &VarianceModel,
    group: &MetricGroup,
    identity: &CpuIdentity,
    values: &[(&ReferenceMachine, f64)],
) -> Option<MachinePrediction> {
    let related_values: Vec<(f64, MachineRelation)> =
        values.iter().map(|(machine, value)| (*value, identity.relation(&machine.identity))).collect();
    let relation_between = |first: usize, second: usize| values[first].0.identity.relation(&values[second].0.identity);
    model.effects(group)?.predict(&related_values, relation_between)
}

fn value_at_case(cases: &[(Case, f64)], case: &Case) -> Option<f64> {
    cases.iter().find(|(candidate, _)| candidate == case).map(|(_, value)| *value)
}
