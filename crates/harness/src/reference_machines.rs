//! What is known of other machines than the one at hand: how far their figures lay from what formulas said, and what figures were of which
//! no formula tells. The closer a machine is related, the more it tells.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use kelvin_core::units::value_text;
use kelvin_core::{
    Calibration, Case, Input, Machine, Metric, Name, NoPrediction, PlannedMeasurement, Prediction, PredictionBasis,
    Unit,
};
use kelvin_stats::{MachinePrediction, MachineRelation, PREDICTION_LEVEL, Samples, mean, normal_quantile};

use crate::facts::PredictionInputs;
use crate::probe::Probe;

mod reference_data;
mod variance_model;

pub use reference_data::{
    HeadlineTable, Proxy, ProxyCases, ReferenceHeadline, ReferenceRecord, ReferenceRules, SizedCases,
};
use variance_model::{
    FormulaErrors, MetricGroup, PROXY_VARIANCE, PairVariances, UNMODELLED_VARIANCE, VarianceModel, metric_group,
};

/// Figures of one machine by metric, as natural logarithms.
type LogValues = HashMap<Name, Vec<(Case, f64)>>;

/// How far figures of one machine lie from their predictions, by metric and name of the formula: measured over predicted, as natural logarithms.
type LogErrors = HashMap<(Name, Cow<'static, str>), Vec<(Case, f64)>>;

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

/// What other machines tell.
#[derive(Clone, Debug)]
pub struct ReferenceMachines {
    machines: Vec<ReferenceMachine>,
    /// By what the machine at hand is related to them.
    target: CpuIdentity,
    proxies: Vec<Proxy>,
    /// The cases here of metrics whose sizes follow the machine.
    sizes: SizedCases,
    /// Metrics whose cases name parts of the machine.
    part_metrics: Vec<Name>,
    takes_all_cpus: fn(&Metric, &Case) -> bool,
    has_modes: fn(&Metric, &Case) -> bool,
    /// How far figures lie from their formulas.
    formula_variances: VarianceModel,
    /// How far figures lie from what their yardsticks make of those of other machines, and from those of which nothing else tells.
    proxy_variances: VarianceModel,
    unmodelled_variances: VarianceModel,
    /// Half of a range, in standard deviations.
    range_deviations: f64,
}

impl ReferenceMachines {
    /// What these machines tell of the figures that are planned on another: no machine is judged by itself.
    pub fn new(
        probes: &[&Probe],
        others: &[ReferenceRecord],
        rules: &ReferenceRules<'_>,
        (here, plan): (&Machine, &[PlannedMeasurement]),
    ) -> Self {
        let others = others.iter().filter(|other| other.machine != *here);
        let machines: Vec<ReferenceMachine> = others.map(|other| evaluate_reference(probes, other, rules)).collect();
        let metrics: BTreeMap<Name, &'static Metric> =
            probes.iter().flat_map(|probe| probe.metrics).map(|metric| (metric.id, *metric)).collect();
        let about_formulas = formula_variances(&metrics, &machines.iter().collect::<Vec<_>>());
        let [mut over_yardsticks, mut of_anything] = [PairVariances::default(), PairVariances::default()];
        for metric in metrics.values() {
            let own: Vec<&Proxy> = rules.proxies.iter().filter(|proxy| proxy.metric.id == metric.id).collect();
            let proxy_at = |case: &Case| own.iter().position(|proxy| proxy.is_of(metric, case));
            let pairs = |at: Option<usize>| {
                let proxy = at.map(|at| own[at]);
                let is_asked = |machine: &ReferenceMachine, case: &Case| {
                    let is_preferred = proxy.is_some_and(|proxy| proxy.is_preferred);
                    proxy_at(case) == at && (is_preferred || !machine.has_formula(metric.id, case))
                };
                pair_variances(&machines, metric.id, proxy.and_then(|proxy| proxy.scales_with), is_asked)
            };
            for (relation, squares) in pairs(None) {
                of_anything[relation as usize].entry(metric_group(metric)).or_default().push(mean(&squares));
            }
            for (at, _) in own.iter().enumerate().filter(|(_, proxy)| proxy.scales_with.is_some()) {
                for (relation, squares) in pairs(Some(at)) {
                    over_yardsticks[relation as usize].entry(metric_group(metric)).or_default().push(mean(&squares));
                }
            }
        }
        let over_yardsticks = VarianceModel::from_machine_pairs(over_yardsticks, PROXY_VARIANCE, &about_formulas);
        let of_anything = VarianceModel::from_machine_pairs(of_anything, UNMODELLED_VARIANCE, &about_formulas);
        let ReferenceRules { takes_all_cpus, has_modes, .. } = *rules;
        Self {
            range_deviations: range_deviations(&metrics, &machines),
            machines,
            target: CpuIdentity::from_machine(here),
            proxies: rules.proxies.to_vec(),
            sizes: SizedCases::from_plan(rules, plan),
            part_metrics: rules.part_metrics.iter().map(|metric| metric.id).collect(),
            takes_all_cpus,
            has_modes,
            formula_variances: about_formulas,
            proxy_variances: over_yardsticks,
            unmodelled_variances: of_anything,
        }
    }

    /// The same prediction in the range that figures of its kind have about their formula on these machines, and so much wider as the
    /// inputs are uncertain (`inputs`: half of the range that follows from them, as a natural logarithm). Where no machine tells, and of
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
        let off = self.formula_error(metric, case, prediction.formula_name.clone()).filter(|_| prediction.value > 0.0);
        let Some((range, calibration)) = off else {
            return prediction;
        };
        let half = (self.range_deviations * range.std).hypot(inputs);
        let [low, value, high] = [-half, 0.0, half]
            .map(|away| clamp_to_physical_range(prediction.value * (range.mean + away).exp(), metric));
        let (most, range_end) =
            prediction.ceiling.map_or((f64::INFINITY, f64::INFINITY), |ceiling| (ceiling.limit, ceiling.range_end));
        let [low, value, high] = [low.min(most), value.min(most), high.min(range_end)];
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
        let family = formula_errors(self.machines.iter(), &key)?;
        let range =
            formula_error_interval(&self.formula_variances, &metric_group(metric), &self.target, (&family, case))?;
        let half = self.range_deviations * range.std;
        let [low, high] = [-half, half].map(|away| (range.mean + away).exp());
        Some((range, Calibration { low, high, figures: family.value_count(), machines: family.machines() }))
    }

    fn proxy(&self, metric: &Metric, case: &Case) -> Option<&Proxy> {
        self.proxies.iter().find(|proxy| proxy.is_of(metric, case))
    }

    /// Whether the proxy of a metric at a case tells more than its formula.
    pub fn prefers_proxy(&self, metric: &Metric, case: &Case) -> bool {
        self.proxy(metric, case).is_some_and(|proxy| proxy.is_preferred)
    }

    /// A prediction of a figure by what it is on these machines, where no formula tells; or why there is none.
    pub(crate) fn predict_from_peers(
        &self,
        facts: &PredictionInputs<'_>,
        metric: &Metric,
        case: &Case,
        why: NoPrediction,
    ) -> Result<Prediction, NoPrediction> {
        let by = match self.proxy(metric, case) {
            Some(Proxy { scales_with: None, .. }) => return Err(why),
            known => known.and_then(|proxy| proxy.scales_with),
        };
        let figures = self.log_values(facts.machine(), metric, case);
        let scaled =
            figures.iter().filter_map(|(machine, figure)| self.scale_by_proxy(facts, machine, *figure, by?, case));
        let scaled: Vec<ProxyScaled<'_>> = scaled.collect();
        // What a run that measured the yardstick scales is not told unscaled by one that did not: a figure has one prediction.
        if let Some((by, at)) = by.filter(|_| scaled.is_empty())
            && figures.iter().any(|(machine, _)| machine.has_value(by.id, at, case))
        {
            let by = proxy_text(by, at);
            return Err(NoPrediction::new(format!("it is scaled by {by}, which this run did not measure")));
        }
        // By the yardstick where any machine has it: a mean of both would be of nothing.
        let proxy = by.filter(|_| !scaled.is_empty()).map(|(by, at)| proxy_text(by, at));
        let own: Vec<(&ReferenceMachine, f64)> = match &proxy {
            Some(_) => scaled.iter().map(|one| (one.machine, one.log_value + one.log_ratio)).collect(),
            None => figures.clone(),
        };
        let spread = if proxy.is_some() { &self.proxy_variances } else { &self.unmodelled_variances };
        let Some(range) = next_machine_interval(spread, &metric_group(metric), &self.target, &own) else {
            return Err(why);
        };
        let half = self.range_deviations * range.std;
        let [low, value, high] =
            [-half, 0.0, half].map(|away| clamp_to_physical_range((range.mean + away).exp(), metric));
        let in_words = |figure: f64| value_text(figure.exp(), metric.unit);
        let parts: Vec<String> = match &proxy {
            Some(proxy) => {
                let ratio =
                    |one: &ProxyScaled<'_>| format!("{} x {:.2} by {proxy}", one.machine.name, one.log_ratio.exp());
                scaled.iter().map(|one| format!("{} on {}", in_words(one.log_value), ratio(one))).collect()
            }
            None => {
                figures.iter().map(|(machine, figure)| format!("{} on {}", in_words(*figure), machine.name)).collect()
            }
        };
        let inputs = proxy.iter().flat_map(|proxy| {
            scaled.iter().map(move |one| Input {
                name: format!("{proxy}, here over {}", one.machine.name),
                value: one.log_ratio.exp(),
                unit: Unit::Ratio,
                source: "measured in this run and there".into(),
            })
        });
        let formula = match &proxy {
            Some(proxy) => format!("the same elsewhere x {proxy} here over there"),
            None => "the same elsewhere".into(),
        };
        let derivation = format!("{}; no formula, since {}", parts.join(", "), why.0);
        Ok(Prediction {
            value,
            low,
            high,
            basis: PredictionBasis::ReferenceMachines,
            formula,
            inputs: inputs.collect(),
            derivation,
            sources: Vec::new(),
            calibration: None,
            formula_name: Cow::Borrowed("the same elsewhere"),
            ceiling: None,
        })
    }

    /// A figure on each of the machines that tell of it: their names, and its values in the metric's unit.
    pub fn values_on_references(&self, here: &Machine, metric: &Metric, case: &Case) -> Vec<(&str, f64)> {
        let figures = self.log_values(here, metric, case).into_iter();
        figures.map(|(machine, figure)| (machine.name.as_str(), figure.exp())).collect()
    }

    /// Like `values_on_references`, as natural logarithms.
    fn log_values(&self, here: &Machine, metric: &Metric, case: &Case) -> Vec<(&ReferenceMachine, f64)> {
        let is_told_by = |machine: &&ReferenceMachine| {
            machine.cpus == allowed_cpu_count(here) || !(self.takes_all_cpus)(metric, case)
        };
        self.machines
            .iter()
            .filter(is_told_by)
            .filter_map(|machine| Some((machine, self.value_at(machine.log_values.get(&metric.id)?, metric, case)?)))
            .collect()
    }

    /// A figure of another machine at a case, or at the one in its place.
    fn value_at(&self, cases: &[(Case, f64)], metric: &Metric, case: &Case) -> Option<f64> {
        if self.part_metrics.contains(&metric.id) {
            return Some(mean(&cases.iter().map(|(_, value)| *value).collect::<Vec<f64>>()));
        }
        self.sizes.lookup(&metric.id, case, cases)
    }

    /// A figure of another machine by its yardstick, if both machines have measured that.
    fn scale_by_proxy<'a>(
        &self,
        facts: &PredictionInputs<'_>,
        machine: &'a ReferenceMachine,
        figure: f64,
        (by, which): (&Metric, ProxyCases),
        case: &Case,
    ) -> Option<ProxyScaled<'a>> {
        let there = machine.log_values.get(&by.id)?;
        let here = |case: &Case| facts.measured(by, case).ok().map(|input| input.value).filter(|value| *value > 0.0);
        let slower = match which {
            ProxyCases::SameCase => here(case)?.ln() - self.value_at(there, by, case)?,
            ProxyCases::At(_) => {
                let there = there.iter().filter(|(known, _)| which.includes(case, known));
                let each: Vec<f64> = there.filter_map(|(case, there)| Some(here(case)?.ln() - there)).collect();
                if each.is_empty() {
                    return None;
                }
                mean(&each)
            }
        };
        Some(ProxyScaled { machine, log_value: figure, log_ratio: slower })
    }
}

/// A figure of another machine, and how much more its yardstick is here: natural logarithms.
struct ProxyScaled<'a> {
    machine: &'a ReferenceMachine,
    log_value: f64,
    log_ratio: f64,
}

/// The yardstick by its name: `os.switch.cost (mechanism=pipe task=process)`.
fn proxy_text(by: &Metric, at: ProxyCases) -> String {
    match at {
        ProxyCases::At(words @ [_, ..]) => {
            format!("{} ({})", by.id, words.iter().fold(Case::new(), |case, word| case.with_word(*word)))
        }
        _ => by.id.to_string(),
    }
}

/// A figure within what is physically possible.
fn clamp_to_physical_range(value: f64, metric: &Metric) -> f64 {
    let value = metric.floor.map_or(value, |floor| value.max(floor));
    metric.ceiling.map_or(value, |ceiling| value.min(ceiling))
}

fn evaluate_reference(probes: &[&Probe], other: &ReferenceRecord, rules: &ReferenceRules<'_>) -> ReferenceMachine {
    let headlines = HeadlineTable::new(other, SizedCases::from_default_run(probes, rules, &other.machine));
    let look_up = |metric: &str, case: &Case| headlines.lookup(metric, case);
    let facts = PredictionInputs::new(&other.machine, &look_up);
    let mut known = ReferenceMachine {
        name: other.name.clone(),
        identity: CpuIdentity::from_machine(&other.machine),
        cpus: allowed_cpu_count(&other.machine),
        log_values: LogValues::new(),
        log_errors: LogErrors::new(),
        half_widths: LogValues::new(),
    };
    for probe in probes {
        for metric in probe.metrics {
            for (case, found) in
                headlines.by_metric.get(&metric.id).into_iter().flatten().filter(|(_, found)| found.value > 0.0)
            {
                let log = found.value.ln();
                known.log_values.entry(metric.id).or_default().push((case.clone(), log));
                let half_width = found.half_width / found.value;
                known.half_widths.entry(metric.id).or_default().push((case.clone(), half_width));
                let predicted = facts.predict_by_formula(|facts| (probe.predict)(facts, metric, case)).ok();
                if let Some(predicted) = predicted.map(|found| found.prediction).filter(|found| found.value > 0.0) {
                    let off = log - predicted.value.ln();
                    known.log_errors.entry((metric.id, predicted.formula_name)).or_default().push((case.clone(), off));
                }
            }
        }
    }
    known
}

/// CPUs that a run may use.
fn allowed_cpu_count(machine: &Machine) -> usize {
    machine.topology.allowed.get().map_or(1, Vec::len)
}

impl ReferenceMachine {
    /// Whether a formula tells of a metric at a case.
    fn has_formula(&self, metric: Name, case: &Case) -> bool {
        self.log_errors.iter().any(|((of, _), cases)| *of == metric && value_at_case(cases, case).is_some())
    }

    /// Whether one of the cases of a figure's yardstick was measured.
    fn has_value(&self, metric: Name, at: ProxyCases, case: &Case) -> bool {
        let is_any = |cases: &Vec<(Case, f64)>| match at {
            ProxyCases::SameCase => true,
            ProxyCases::At(_) => cases.iter().any(|(known, _)| at.includes(case, known)),
        };
        self.log_values.get(&metric).is_some_and(is_any)
    }

    /// How much more a metric is here than on another machine, at all cases of both: natural logarithms.
    fn log_ratios<'a>(&'a self, other: &'a Self, metric: Name) -> Vec<(&'a Case, f64)> {
        let [here, there] = [self, other].map(|machine| machine.log_values.get(&metric).map_or(&[][..], Vec::as_slice));
        here.iter().filter_map(|(case, figure)| Some((case, figure - value_at_case(there, case)?))).collect()
    }
}

/// By pair of machines their relation, and halves of the squares of how far a metric lies apart, over its yardstick or of itself: at the
/// cases of both that are `asked` for. Pairs without one are left out.
fn pair_variances(
    machines: &[ReferenceMachine],
    metric: Name,
    by: Option<(&Metric, ProxyCases)>,
    asked: impl Fn(&ReferenceMachine, &Case) -> bool,
) -> Vec<(MachineRelation, Vec<f64>)> {
    let mut pairs = Vec::new();
    for (number, one) in machines.iter().enumerate() {
        for other in &machines[number + 1..] {
            let yardstick = by.map(|(by, at)| (one.log_ratios(other, by.id), at));
            let expected = |case: &Case| {
                let Some((each, at)) = &yardstick else { return Some(0.0) };
                let counted = each.iter().filter(|(known, _)| at.includes(case, known));
                let counted: Vec<f64> = counted.map(|(_, more)| *more).collect();
                (!counted.is_empty()).then(|| mean(&counted))
            };
            let both = one.log_ratios(other, metric).into_iter();
            let both = both.filter(|(case, _)| asked(one, case) && asked(other, case));
            // The difference of two has twice the variance of one.
            let squares: Vec<f64> =
                both.filter_map(|(case, more)| Some((more - expected(case)?).powi(2) / 2.0)).collect();
            if !squares.is_empty() {
                pairs.push((one.identity.relation(&other.identity), squares));
            }
        }
    }
    pairs
}

/// What these machines tell of a metric by a formula.
fn formula_errors<'a>(
    machines: impl Iterator<Item = &'a ReferenceMachine>,
    formula: &(Name, Cow<'static, str>),
) -> Option<FormulaErrors<'a>> {
    FormulaErrors::new(machines.filter_map(|machine| Some((machine, machine.log_errors.get(formula)?.as_slice()))))
}

/// How far figures of these machines lie from their formulas.
fn formula_variances(metrics: &BTreeMap<Name, &'static Metric>, machines: &[&ReferenceMachine]) -> VarianceModel {
    let formulas: BTreeSet<_> = machines.iter().flat_map(|machine| machine.log_errors.keys()).collect();
    let families = formulas.into_iter().filter_map(|formula| {
        let family = formula_errors(machines.iter().copied(), formula)?;
        Some((metric_group(metrics.get(&formula.0)?), family))
    });
    VarianceModel::from_formulas(families)
}

/// How far a figure of a machine of this kin lies from its formula, by how far those of others do.
fn formula_error_interval(
    spread: &VarianceModel,
    subject: &MetricGroup,
    kin: &CpuIdentity,
    (family, case): (&FormulaErrors<'_>, &Case),
) -> Option<MachinePrediction> {
    let MachinePrediction { mean, std } = next_machine_interval(spread, subject, kin, &family.values_at(case))?;
    Some(MachinePrediction { mean, std: std * spread.relative_variance(subject, family)?.sqrt() })
}

/// What a machine of this kin shows of a subject, by what others do.
fn next_machine_interval(
    spread: &VarianceModel,
    subject: &MetricGroup,
    kin: &CpuIdentity,
    own: &[(&ReferenceMachine, f64)],
) -> Option<MachinePrediction> {
    let known: Vec<(f64, MachineRelation)> =
        own.iter().map(|(machine, value)| (*value, kin.relation(&machine.identity))).collect();
    let between = |one: usize, other: usize| own[one].0.identity.relation(&own[other].0.identity);
    spread.effects(subject)?.predict(&known, between)
}

/// How many standard deviations hold as large a share of the figures of each of these machines as a range is to hold, where it is predicted
/// by the others alone: distances have no normal distribution, and what a handful of machines has in common is less than what one more shows.
/// The interval of a figure may touch the range. Those of a normal distribution where fewer than two machines are known.
fn range_deviations(metrics: &BTreeMap<Name, &'static Metric>, machines: &[ReferenceMachine]) -> f64 {
    let of = |number: usize| {
        let here = &machines[number];
        let others: Vec<&ReferenceMachine> = machines[..number].iter().chain(&machines[number + 1..]).collect();
        let spread = formula_variances(metrics, &others);
        let mut distances = Vec::new();
        for (formula, cases) in &here.log_errors {
            let Some((family, metric)) = formula_errors(others.iter().copied(), formula).zip(metrics.get(&formula.0))
            else {
                continue;
            };
            distances.extend(cases.iter().filter_map(|(case, off)| {
                let range = formula_error_interval(&spread, &metric_group(metric), &here.identity, (&family, case))?;
                let half_width = value_at_case(here.half_widths.get(&metric.id)?, case)?;
                Some(((off - range.mean).abs() - half_width).max(0.0) / range.std)
            }));
        }
        Some(Samples::new(distances).ok()?.sorted().quantile(PREDICTION_LEVEL))
    };
    (0..machines.len()).filter_map(of).fold(normal_quantile(f64::midpoint(1.0, PREDICTION_LEVEL)), f64::max)
}

fn value_at_case(cases: &[(Case, f64)], case: &Case) -> Option<f64> {
    cases.iter().find(|(known, _)| known == case).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Ceiling, Fact, MeasuredValue};

    use super::*;
    use crate::probe::{Effort, Method, ProbeError, ProbeKind};

    static CALL: Metric = Metric::duration("test.call", "A call");
    static TWICE: Metric = Metric::duration("test.twice", "Two calls");
    static WORK: Metric = Metric::duration("test.work", "Work of which no formula tells");
    static SETTING: Metric = Metric::duration("test.setting", "A setting");

    static PROBE: Probe = Probe {
        id: "test",
        summary: "A test",
        kind: ProbeKind::Measure,
        method: Method { how: "", prediction: "", not_for: "", pitfalls: &[], sources: &[] },
        metrics: &[&CALL, &TWICE, &WORK, &SETTING],
        cases: |_: &Machine, _: Effort| Vec::new(),
        run: |_, _| Err(ProbeError::fail("it is never run")),
        predict: |facts, metric, _| match metric.id == TWICE.id {
            false => Err(NoPrediction::new("nothing is published")),
            true => {
                let call = facts.measured(&CALL, &Case::new())?;
                let value = 2.0 * call.value;
                let (formula, derivation) = ("2 x call".into(), "2 x call".into());
                let (basis, inputs, sources) = (PredictionBasis::Derived, vec![call], Vec::new());
                let (low, high) = (value / 4.0, value * 4.0);
                let formula_name = if facts.machine().topology.allowed.get().is_some() { "stated" } else { "calls" };
                let ceiling = (formula_name == "stated").then_some(Ceiling { limit: value, range_end: 1.02 * value });
                Ok(Prediction {
                    value,
                    low,
                    high,
                    basis,
                    formula,
                    inputs,
                    derivation,
                    sources,
                    calibration: None,
                    formula_name: formula_name.into(),
                    ceiling,
                })
            }
        },
    };
    const RULES: ReferenceRules<'_> = ReferenceRules {
        proxies: &[proxy(&WORK, Some((&CALL, ProxyCases::At(&[])))), proxy(&SETTING, None)],
        ..ReferenceRules::NONE
    };

    /// What these machines tell of one of this model, with nothing planned.
    fn reference_machines(others: &[ReferenceRecord], rules: &ReferenceRules<'_>, model: u32) -> ReferenceMachines {
        ReferenceMachines::new(&[&PROBE], others, rules, (&machine(model), &[]))
    }

    const fn proxy(metric: &'static Metric, by: Option<(&'static Metric, ProxyCases)>) -> Proxy {
        Proxy { metric, words: &[], scales_with: by, is_preferred: false }
    }

    fn machine(model: u32) -> Machine {
        let mut machine = Machine::default();
        machine.cpu.model = Fact::known(model, "a test");
        machine
    }

    /// A machine on which a call takes this long, two calls and the work as long as said.
    fn reference(model: u32, figures: [(&'static Metric, f64); 4]) -> ReferenceRecord {
        let figures = figures.map(|(metric, value)| ReferenceHeadline {
            metric: metric.id,
            case: Case::new(),
            value,
            half_width: 0.0,
        });
        ReferenceRecord { name: format!("machine {model}"), machine: machine(model), figures: figures.into() }
    }

    fn predicted(elsewhere: &ReferenceMachines, metric: &Metric, half_width: f64) -> Result<Prediction, NoPrediction> {
        let (here, case) = (machine(9), Case::new());
        let measured = |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width });
        let facts = PredictionInputs::new(&here, &measured).with_references(elsewhere);
        facts.predict(metric, &case, |facts| (PROBE.predict)(facts, metric, &case))
    }

    fn one_machine() -> [ReferenceRecord; 1] {
        // Two calls take 1.21 times what the formula says, and the work as long as five calls.
        [reference(1, [(&CALL, 100.0), (&TWICE, 242.0), (&WORK, 500.0), (&SETTING, 7.0)])]
    }

    #[test]
    fn formula_is_corrected_by_reference_errors() {
        let elsewhere = reference_machines(&one_machine(), &RULES, 9);
        let found = predicted(&elsewhere, &TWICE, 0.0).unwrap();
        // Half of what it was off returns.
        assert!((found.value - 400.0 * 1.1).abs() < 1e-9, "{found:?}");
        assert!(((found.value / found.low).ln() - (found.high / found.value).ln()).abs() < 1e-9);
        let calibration = found.calibration.unwrap();
        assert_eq!((calibration.figures, calibration.machines), (1, 1));
        assert!((found.high / 400.0 - calibration.high).abs() < 1e-9 && calibration.high < 2.0, "{calibration:?}");
        assert!(found.derivation.starts_with("2 x call; on one other machine "), "{found:?}");
        let wider = predicted(&elsewhere, &TWICE, 100.0).unwrap();
        // The input is half as much again or half as much at the ends of its interval: a range at 90 % is 1.645 / 1.96 of one at 95 %.
        let of_input = (3.0_f64).ln() / 2.0 * 1.644_854 / 1.959_964;
        let expected = (found.high / found.value).ln().hypot(of_input);
        assert!(((wider.high / wider.value).ln() - expected).abs() < 1e-5, "{wider:?}");
        assert!((wider.value - found.value).abs() < 1e-9);
    }

    /// Formulas of one text: that of two calls is another one where the machine states its CPUs.
    #[test]
    fn correction_is_per_formula_and_below_ceiling() {
        let predicted = |others: &[ReferenceRecord]| {
            let mut here = machine(9);
            here.topology.allowed = Fact::known(vec![0], "a test");
            let measured =
                |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width: 0.0 });
            let elsewhere = ReferenceMachines::new(&[&PROBE], others, &RULES, (&here, &[]));
            let facts = PredictionInputs::new(&here, &measured).with_references(&elsewhere);
            facts.predict(&TWICE, &Case::new(), |facts| (PROBE.predict)(facts, &TWICE, &Case::new())).unwrap()
        };
        let mut others = one_machine();
        let apart = predicted(&others);
        assert_eq!((apart.value, apart.calibration), (400.0, None), "corrected by another formula of the same text");
        others[0].machine.topology.allowed = Fact::known(vec![0], "a test");
        let corrected = predicted(&others);
        assert!(corrected.calibration.is_some() && corrected.low < 400.0, "{corrected:?}");
        assert_eq!((corrected.value, corrected.high), (400.0, 408.0), "{corrected:?}");
    }

    #[test]
    fn own_machine_is_excluded_from_references() {
        let others = one_machine();
        let own_kind = reference_machines(&others, &RULES, 1);
        let found = predicted(&own_kind, &TWICE, 0.0).unwrap();
        assert_eq!((found.value, found.low, found.high, found.calibration), (400.0, 100.0, 1600.0, None));
        assert_eq!(predicted(&own_kind, &WORK, 0.0).unwrap_err().0, "nothing is published");
    }

    #[test]
    fn metric_without_formula_uses_proxy() {
        let known = reference_machines(&one_machine(), &RULES, 9);
        let found = predicted(&known, &WORK, 0.0).unwrap();
        assert!((found.value - 1000.0).abs() < 1e-6, "a call takes twice as long here, so does the work: {found:?}");
        assert_eq!(
            (found.basis, found.formula.as_str()),
            (PredictionBasis::ReferenceMachines, "the same elsewhere x test.call here over there")
        );
        assert_eq!(found.derivation, "500 ns on machine 1 x 2.00 by test.call; no formula, since nothing is published");
        assert_eq!(predicted(&known, &SETTING, 0.0).unwrap_err().0, "nothing is published");
        // Without its yardstick, as it is there: in a wider range.
        let as_it_is = predicted(&known, &CALL, 0.0).unwrap();
        assert!((as_it_is.value - 100.0).abs() < 1e-9);
        assert!(as_it_is.high / as_it_is.low > found.high / found.low);
        // Two that agree tell more than one.
        let [first] = one_machine();
        let second = reference(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0), (&SETTING, 7.0)]);
        let both = reference_machines(&[first, second], &RULES, 9);
        let narrower = predicted(&both, &WORK, 0.0).unwrap();
        assert!((narrower.value - 1000.0).abs() < 1e-6 && narrower.high / narrower.low < found.high / found.low);
    }

    #[test]
    fn missing_size_maps_by_position() {
        let size = |bytes| Case::new().with_number("bytes", bytes);
        let figures = [(16, 1.0), (64, 4.0)].map(|(bytes, value)| ReferenceHeadline {
            metric: WORK.id,
            case: size(bytes),
            value,
            half_width: 0.0,
        });
        let other = ReferenceRecord { name: "another".into(), machine: machine(1), figures: figures.into() };
        let planned = |bytes| PlannedMeasurement {
            probe: Name::new("test"),
            metrics: vec![WORK.id],
            case: size(bytes),
            only_input: false,
        };
        let rules = ReferenceRules { sized_metrics: &[&WORK], ..ReferenceRules::NONE };
        let of = |rules: &ReferenceRules<'_>, plan: &[PlannedMeasurement]| {
            ReferenceMachines::new(&[&PROBE], std::slice::from_ref(&other), rules, (&machine(9), plan))
        };
        let (here, nothing) = (machine(9), |_: &str, _: &Case| None);
        let value = |elsewhere: &ReferenceMachines, bytes| {
            let facts = PredictionInputs::new(&here, &nothing).with_references(elsewhere);
            let found = facts.predict(&WORK, &size(bytes), |facts| (PROBE.predict)(facts, &WORK, &size(bytes)));
            found.ok().map(|found| found.value.round())
        };
        let of_any = of(&ReferenceRules::NONE, &[planned(32), planned(8)]);
        assert_eq!((value(&of_any, 16), value(&of_any, 32)), (Some(1.0), None));
        let sized = of(&rules, &[planned(32), planned(8)]);
        assert_eq!((value(&sized, 8), value(&sized, 32)), (Some(1.0), Some(4.0)));
        let of_more_sizes = of(&rules, &[planned(32), planned(8), planned(1)]);
        assert_eq!(value(&of_more_sizes, 32), None, "three sizes are in no two places");
        // The machine's own figures stand for those that a default run of today would measure there.
        let sizes = SizedCases(HashMap::from([(WORK.id, vec![size(8), size(32)])]));
        let headlines = HeadlineTable::new(&other, sizes);
        let value = |bytes| headlines.lookup(&WORK.id, &size(bytes)).map(|found| found.value);
        assert_eq!([8, 16, 32, 64].map(value), [Some(1.0), Some(1.0), Some(4.0), Some(4.0)]);
        assert_eq!(value(128), None);
    }

    #[test]
    fn part_case_uses_mean_of_reference_parts() {
        let figure = |place: u64, value| ReferenceHeadline {
            metric: WORK.id,
            case: Case::new().with_number("place", place),
            value,
            half_width: 0.0,
        };
        let other = ReferenceRecord {
            name: "another".into(),
            machine: machine(1),
            figures: vec![figure(0, 40.0), figure(1, 90.0)],
        };
        let of = |rules: &ReferenceRules<'_>| reference_machines(std::slice::from_ref(&other), rules, 9);
        let (here, nothing, case) = (machine(9), |_: &str, _: &Case| None, Case::new().with_number("place", 7u64));
        let value = |elsewhere: &ReferenceMachines| {
            let facts = PredictionInputs::new(&here, &nothing).with_references(elsewhere);
            facts.predict(&WORK, &case, |facts| (PROBE.predict)(facts, &WORK, &case)).ok().map(|found| found.value)
        };
        assert_eq!(value(&of(&ReferenceRules::NONE)), None);
        let found = value(&of(&ReferenceRules { part_metrics: &[&WORK], ..ReferenceRules::NONE })).unwrap();
        assert!((found - 60.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn preferred_proxy_replaces_formula() {
        let first = Proxy { is_preferred: true, ..proxy(&TWICE, Some((&CALL, ProxyCases::At(&[])))) };
        let yardsticks = [first];
        let rules = ReferenceRules { proxies: &yardsticks, ..ReferenceRules::NONE };
        let found = predicted(&reference_machines(&one_machine(), &rules, 9), &TWICE, 0.0).unwrap();
        // 242 ns there, and a call takes twice as long here.
        assert!((found.value - 484.0).abs() < 1e-9 && found.basis == PredictionBasis::ReferenceMachines, "{found:?}");
        assert!(found.derivation.ends_with("the figure of other machines tells more than its formula"), "{found:?}");
        // With no other machine there is the formula.
        let alone = predicted(&reference_machines(&one_machine(), &rules, 1), &TWICE, 0.0).unwrap();
        assert_eq!((alone.value, alone.basis), (400.0, PredictionBasis::Derived));
    }

    /// A run that measured all of it, and one that did not: either the same prediction or none.
    #[test]
    fn unmeasured_proxy_gives_no_prediction() {
        let predicted = |rules: &ReferenceRules<'_>, metric: &Metric| {
            let (here, case, elsewhere) = (machine(9), Case::new(), reference_machines(&one_machine(), rules, 9));
            let facts = PredictionInputs::new(&here, &|_, _| None).with_references(&elsewhere);
            facts.predict(metric, &case, |facts| (PROBE.predict)(facts, metric, &case))
        };
        let scaled = predicted(&RULES, &WORK).unwrap_err();
        assert_eq!(scaled.0, "it is scaled by test.call, which this run did not measure");
        let derived = predicted(&RULES, &TWICE).unwrap_err();
        assert_eq!(derived.0, "it is derived from test.call, which this run did not measure");
        let first = Proxy { is_preferred: true, ..proxy(&TWICE, Some((&CALL, ProxyCases::At(&[])))) };
        let rules = ReferenceRules { proxies: &[first], ..ReferenceRules::NONE };
        assert_eq!(predicted(&rules, &TWICE).unwrap_err().0, scaled.0);
        // What nothing scales is told as it is, in either run.
        assert!(predicted(&ReferenceRules::NONE, &WORK).is_ok());
    }

    #[test]
    fn consistent_proxies_narrow_the_range() {
        // The work takes five calls on the first, and this many times that on the second.
        let range = |times: f64| {
            let [first] = one_machine();
            let second = reference(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0 * times), (&SETTING, 7.0)]);
            let found = predicted(&reference_machines(&[first, second], &RULES, 9), &WORK, 0.0).unwrap();
            found.high / found.low
        };
        let one = predicted(&reference_machines(&one_machine(), &RULES, 9), &WORK, 0.0).unwrap();
        assert!(range(1.0) < range(1.2) && range(1.2) < range(2.0));
        assert!(range(1.0) < one.high / one.low, "a second machine that agrees tells that the yardstick holds");
    }

    /// Half of a range by how machines lie from their formulas when each is told by the others alone.
    #[test]
    fn range_covers_worst_predicted_machine() {
        let of = |times: &[f64]| {
            let machines = times.iter().enumerate().map(|(model, times)| {
                reference(model as u32 + 1, [(&CALL, 100.0), (&TWICE, 200.0 * times), (&WORK, 500.0), (&SETTING, 7.0)])
            });
            reference_machines(&machines.collect::<Vec<_>>(), &RULES, 9).range_deviations
        };
        let normal = normal_quantile(0.95);
        assert_eq!((of(&[]), of(&[1.2]), of(&[1.1, 1.1, 1.1])), (normal, normal, normal));
        // Two that agree tell nothing of a third that is three times as far from the formula as they are.
        let worst = of(&[1.02, 1.02, 1.5]);
        assert!(worst > 2.0 * normal, "{worst}");
    }

    #[test]
    fn all_cpu_metrics_need_equal_cpu_count() {
        let mut others = one_machine();
        let rules = ReferenceRules { takes_all_cpus: |metric, _| metric.id == WORK.id, ..RULES };
        let is_told =
            |others: &[ReferenceRecord]| predicted(&reference_machines(others, &rules, 9), &WORK, 0.0).is_ok();
        assert!(is_told(&others));
        others[0].machine.topology.allowed = Fact::known(vec![0, 1, 2], "a test");
        assert!(!is_told(&others));
        assert!(predicted(&reference_machines(&others, &RULES, 9), &WORK, 0.0).is_ok());
    }

    #[test]
    fn bimodal_metric_keeps_formula_range() {
        let rules = ReferenceRules { has_modes: |metric, _| metric.id == TWICE.id, ..ReferenceRules::NONE };
        let of =
            |rules: &ReferenceRules<'_>| predicted(&reference_machines(&one_machine(), rules, 9), &TWICE, 0.0).unwrap();
        assert!(of(&rules).calibration.is_none() && of(&ReferenceRules::NONE).calibration.is_some());
    }

    #[test]
    fn range_stays_within_floor_and_ceiling() {
        static SHARE: Metric = Metric { ceiling: Some(600.0), floor: Some(450.0), ..WORK };
        let elsewhere = reference_machines(&one_machine(), &ReferenceRules::NONE, 9);
        let found = predicted(&elsewhere, &SHARE, 0.0).unwrap();
        assert_eq!((found.low, found.high), (450.0, 600.0));
    }
}
