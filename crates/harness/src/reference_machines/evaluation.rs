//! What reference machines predict, from their runs: their figures, and how far these lay from what the formulas of probes predict.

use std::collections::BTreeMap;

use kelvin_core::{Case, Machine, Metric, Name, PlannedMeasurement};
use kelvin_stats::{MachineRelation, PREDICTION_LEVEL, Sorted, mean, normal_quantile};

use super::variance_model::{
    PROXY_VARIANCE, PairVariances, UNMODELLED_VARIANCE, VarianceModel, all_pairs, metric_group,
};
use super::{
    CpuIdentity, HeadlineTable, LogErrors, LogValues, Proxy, ProxyCases, ReferenceMachine, ReferenceMachines,
    ReferenceRecord, ReferenceRules, SizedCases, allowed_cpu_count, formula_error_interval, formula_errors,
    formula_variances, value_at_case,
};
use crate::facts::{FormulaPrediction, PredictionInputs};
use crate::probe::{Effort, Probe};

impl ReferenceMachines {
    /// What these machines predict of the figures that are planned on another: no machine predicts itself.
    pub fn new(
        probes: &[&Probe],
        records: &[ReferenceRecord],
        rules: &ReferenceRules<'_>,
        (machine, plan): (&Machine, &[PlannedMeasurement]),
    ) -> Self {
        let records = records.iter().filter(|record| record.machine != *machine);
        let machines: Vec<ReferenceMachine> = records.map(|record| evaluate_reference(probes, record, rules)).collect();
        let metrics: BTreeMap<Name, &'static Metric> =
            probes.iter().flat_map(|probe| probe.metrics).map(|metric| (metric.id, *metric)).collect();
        let formula_variances = formula_variances(&metrics, &machines.iter().collect::<Vec<_>>());
        let [mut by_proxy, mut unmodelled] = [PairVariances::default(), PairVariances::default()];
        for metric in metrics.values() {
            let proxies: Vec<&Proxy> = rules.proxies.iter().filter(|proxy| proxy.metric.id == metric.id).collect();
            let proxy_index = |case: &Case| proxies.iter().position(|proxy| proxy.applies_to(metric, case));
            let scaling = (0..proxies.len()).filter(|&index| proxies[index].scales_with.is_some());
            for index in scaling.map(Some).chain([None]) {
                let proxy = index.map(|index| proxies[index]);
                let is_predicted = |machine: &ReferenceMachine, case: &Case| {
                    let is_preferred = proxy.is_some_and(|proxy| proxy.is_preferred);
                    proxy_index(case) == index && (is_preferred || !machine.has_formula(metric.id, case))
                };
                let variances = if proxy.is_some() { &mut by_proxy } else { &mut unmodelled };
                let scales_with = proxy.and_then(|proxy| proxy.scales_with);
                for (relation, squares) in pair_variances(&machines, metric.id, scales_with, is_predicted) {
                    variances[relation as usize].entry(metric_group(metric)).or_default().push(mean(&squares));
                }
            }
        }
        let [proxy_variances, unmodelled_variances] = [(by_proxy, PROXY_VARIANCE), (unmodelled, UNMODELLED_VARIANCE)]
            .map(|(pairs, assumed)| VarianceModel::from_machine_pairs(pairs, assumed, &formula_variances));
        let ReferenceRules { takes_all_cpus, has_modes, .. } = *rules;
        Self {
            range_deviations: range_deviations(&metrics, &machines),
            machines,
            target: CpuIdentity::from_machine(machine),
            proxies: rules.proxies.to_vec(),
            sizes: SizedCases::from_plan(rules, plan),
            part_metrics: rules.part_metrics.iter().map(|metric| metric.id).collect(),
            takes_all_cpus,
            has_modes,
            formula_variances,
            proxy_variances,
            unmodelled_variances,
        }
    }
}

impl SizedCases {
    /// Those that a default run would measure on a machine.
    pub fn from_default_run(probes: &[&Probe], rules: &ReferenceRules<'_>, machine: &Machine) -> Self {
        let mut sizes = Self::default();
        for metric in rules.sized_metrics {
            let measuring_probes =
                probes.iter().filter(|probe| probe.metrics.iter().any(|probe_metric| probe_metric.id == metric.id));
            let cases = measuring_probes.flat_map(|probe| (probe.cases)(machine, Effort::Default));
            sizes.0.entry(metric.id).or_default().extend(cases);
        }
        sizes
    }
}

fn evaluate_reference(probes: &[&Probe], record: &ReferenceRecord, rules: &ReferenceRules<'_>) -> ReferenceMachine {
    let headlines = HeadlineTable::new(record, SizedCases::from_default_run(probes, rules, &record.machine));
    let look_up = |metric: &str, case: &Case| headlines.lookup(metric, case);
    let facts = PredictionInputs::new(&record.machine, &look_up);
    let mut reference = ReferenceMachine {
        name: record.name.clone(),
        identity: CpuIdentity::from_machine(&record.machine),
        cpus: allowed_cpu_count(&record.machine),
        log_values: LogValues::new(),
        log_errors: LogErrors::new(),
        half_widths: LogValues::new(),
    };
    for probe in probes {
        for metric in probe.metrics {
            let headlines = headlines.by_metric.get(&metric.id).into_iter().flatten();
            for (case, headline) in headlines.filter(|(_, headline)| headline.value > 0.0) {
                let log_value = headline.value.ln();
                reference.log_values.entry(metric.id).or_default().push((case.clone(), log_value));
                let half_width = headline.half_width / headline.value;
                reference.half_widths.entry(metric.id).or_default().push((case.clone(), half_width));
                let formula_prediction = facts.predict_by_formula(|facts| (probe.predict)(facts, metric, case));
                let Ok(FormulaPrediction { prediction, .. }) = formula_prediction else { continue };
                if prediction.value > 0.0 {
                    let errors = reference.log_errors.entry((metric.id, prediction.formula_name)).or_default();
                    errors.push((case.clone(), log_value - prediction.value.ln()));
                }
            }
        }
    }
    reference
}

/// By pair of machines their relation, and halves of the squares of how far a metric lies apart, over its proxy or of itself: at the
/// cases of both that count. Pairs without one are left out.
fn pair_variances(
    machines: &[ReferenceMachine],
    metric: Name,
    proxy_definition: Option<(&Metric, ProxyCases)>,
    counts: impl Fn(&ReferenceMachine, &Case) -> bool,
) -> Vec<(MachineRelation, Vec<f64>)> {
    let pair_variance = |(machine, other): (&ReferenceMachine, &ReferenceMachine)| {
        let proxy = proxy_definition.map(|(proxy_metric, cases)| (machine.log_ratios(other, proxy_metric.id), cases));
        let expected = |case: &Case| {
            let Some((ratios, cases)) = &proxy else { return Some(0.0) };
            let counted_ratios = ratios.iter().filter(|(proxy_case, _)| cases.includes(case, proxy_case));
            let counted_ratios: Vec<f64> = counted_ratios.map(|(_, ratio)| *ratio).collect();
            (!counted_ratios.is_empty()).then(|| mean(&counted_ratios))
        };
        let ratios = machine.log_ratios(other, metric).into_iter();
        let ratios = ratios.filter(|(case, _)| counts(machine, case) && counts(other, case));
        // The difference of two has twice the variance of one.
        let squares: Vec<f64> =
            ratios.filter_map(|(case, ratio)| Some((ratio - expected(case)?).powi(2) / 2.0)).collect();
        (!squares.is_empty()).then(|| (machine.identity.relation(&other.identity), squares))
    };
    all_pairs(machines).filter_map(pair_variance).collect()
}

/// How many standard deviations hold as large a share of the figures of each of these machines as a range is to hold, where it is predicted
/// by the others alone: distances have no normal distribution, and what a handful of machines has in common is less than what one more shows.
/// The interval of a figure may touch the range. Those of a normal distribution where fewer than two machines are known.
fn range_deviations(metrics: &BTreeMap<Name, &'static Metric>, machines: &[ReferenceMachine]) -> f64 {
    let quantile = |number: usize| {
        let machine = &machines[number];
        let other_machines: Vec<&ReferenceMachine> = machines[..number].iter().chain(&machines[number + 1..]).collect();
        let model = formula_variances(metrics, &other_machines);
        let mut distances = Vec::new();
        for (formula, cases) in &machine.log_errors {
            let Some(errors) = formula_errors(other_machines.iter().copied(), formula) else { continue };
            let Some(metric) = metrics.get(&formula.0) else { continue };
            distances.extend(cases.iter().filter_map(|(case, error)| {
                let range = formula_error_interval(&model, &metric_group(metric), &machine.identity, (&errors, case))?;
                let half_width = value_at_case(machine.half_widths.get(&metric.id)?, case)?;
                Some(((error - range.mean).abs() - half_width).max(0.0) / range.std)
            }));
        }
        Some(Sorted::new(distances)?.quantile(PREDICTION_LEVEL))
    };
    (0..machines.len()).filter_map(quantile).fold(normal_quantile(f64::midpoint(1.0, PREDICTION_LEVEL)), f64::max)
}
