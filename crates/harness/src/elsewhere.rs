//! What is known of other machines than the one at hand: how far their figures lay from what formulas said, and what figures were of which
//! no formula tells. The closer a machine is related, the more it tells.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use kelvin_model::units::plain;
use kelvin_model::{Basis, Calibration, Case, Input, Machine, Metric, Name, NoPrediction, Planned, Prediction, Unit};
use kelvin_stats::{OneMore, RANGE, Relation, Samples, mean, normal_quantile};

use crate::facts::Facts;
use crate::probe::Probe;

mod kept;
mod spread;

pub use kept::{At, Figure, Headlines, OtherMachine, Rules, Sizes, Yardstick};
use spread::{Apart, Family, OF_A_YARDSTICK, OF_ANYTHING, Spread, Subject, subject};

/// Figures of one machine by metric, as natural logarithms.
type Logs = HashMap<Name, Vec<(Case, f64)>>;

/// How far figures of one machine lie from their predictions, by metric and name of the formula: measured over predicted, as natural logarithms.
type Off = HashMap<(Name, Cow<'static, str>), Vec<(Case, f64)>>;

/// Another machine.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    kin: Kin,
    /// CPUs that its runs could use.
    cpus: usize,
    /// Its figures.
    figures: Logs,
    off: Off,
    /// Half-widths of the intervals of its figures, as shares of them.
    half_widths: Logs,
}

/// By what machines are related.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kin {
    architecture: Name,
    vendor: Option<String>,
    /// Family and model of the processor.
    model: (Option<u32>, Option<u32>),
}

impl Kin {
    fn of(machine: &Machine) -> Self {
        let cpu = &machine.cpu;
        let model = (cpu.family.get().copied(), cpu.model.get().copied());
        Self { architecture: machine.architecture, vendor: cpu.vendor.get().cloned(), model }
    }

    /// Processors of one model, of one vendor, or neither.
    fn relation(&self, other: &Self) -> Relation {
        match self {
            Self { model: (_, Some(_)), .. } if self == other => Relation::Kind,
            Self { architecture, vendor: Some(vendor), .. }
                if (*architecture, Some(vendor)) == (other.architecture, other.vendor.as_ref()) =>
            {
                Relation::Group
            }
            _ => Relation::Other,
        }
    }
}

/// What other machines tell.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    machines: Vec<Known>,
    /// By what the machine at hand is related to them.
    kin: Kin,
    yardsticks: HashMap<Name, Yardstick>,
    /// The cases here of metrics whose sizes follow the machine.
    sizes: Sizes,
    /// Metrics whose cases name parts of the machine.
    of_parts: Vec<Name>,
    takes_all_cpus: fn(&Metric, &Case) -> bool,
    has_modes: fn(&Metric, &Case) -> bool,
    /// How far figures lie from their formulas.
    about_formulas: Spread,
    /// How far figures lie from what their yardsticks make of those of other machines, and from those of which nothing else tells.
    over_yardsticks: Spread,
    of_anything: Spread,
    /// Half of a range, in standard deviations.
    deviations: f64,
}

impl Elsewhere {
    /// What these machines tell of the figures that are planned on another: no machine is judged by itself.
    pub fn of(
        probes: &[&Probe],
        others: &[OtherMachine],
        rules: &Rules<'_>,
        (here, plan): (&Machine, &[Planned]),
    ) -> Self {
        let others = others.iter().filter(|other| other.machine != *here);
        let machines: Vec<Known> = others.map(|other| known(probes, other, rules)).collect();
        let yardsticks: HashMap<Name, Yardstick> =
            rules.yardsticks.iter().map(|yardstick| (yardstick.metric.id, *yardstick)).collect();
        let metrics = metrics(probes);
        let about_formulas = about_formulas(&metrics, &machines.iter().collect::<Vec<_>>());
        let [mut over_yardsticks, mut of_anything] = [Apart::default(), Apart::default()];
        for metric in metrics.values() {
            let yardstick = yardsticks.get(&metric.id);
            let (apart, by) = match yardstick.map(|yardstick| yardstick.by) {
                Some(None) => continue,
                Some(by) => (&mut over_yardsticks, by),
                None => (&mut of_anything, None),
            };
            let is_asked = |machine: &Known, case: &Case| {
                yardstick.is_some_and(|yardstick| yardstick.before_formula) || !machine.has_formula(metric.id, case)
            };
            for (relation, squares) in between(&machines, metric.id, by, is_asked) {
                apart[relation as usize].entry(subject(metric)).or_default().push(mean(&squares));
            }
        }
        let over_yardsticks = Spread::between_machines(over_yardsticks, OF_A_YARDSTICK, &about_formulas);
        let of_anything = Spread::between_machines(of_anything, OF_ANYTHING, &about_formulas);
        let Rules { takes_all_cpus, has_modes, .. } = *rules;
        Self {
            deviations: deviations(&metrics, &machines),
            machines,
            kin: Kin::of(here),
            yardsticks,
            sizes: Sizes::planned(rules, plan),
            of_parts: rules.of_parts.iter().map(|metric| metric.id).collect(),
            takes_all_cpus,
            has_modes,
            about_formulas,
            over_yardsticks,
            of_anything,
        }
    }

    /// The same prediction in the range that figures of its kind have about their formula on these machines, and so much wider as the
    /// inputs are uncertain (`inputs`: half of the range that follows from them, as a natural logarithm). Where no machine tells, and of
    /// what has two modes on each, the formula's own range stays. What is stated as the most is never raised.
    pub(crate) fn calibrated(
        &self,
        mut prediction: Prediction,
        metric: &Metric,
        case: &Case,
        inputs: f64,
    ) -> Prediction {
        if (self.has_modes)(metric, case) {
            return prediction;
        }
        let off = self.off(metric, case, prediction.formula_name.clone()).filter(|_| prediction.value > 0.0);
        let Some((range, calibration)) = off else {
            return prediction;
        };
        let half = (self.deviations * range.deviation).hypot(inputs);
        let [low, value, high] = [-half, 0.0, half].map(|away| prediction.value * (range.middle + away).exp());
        let [low, value, high] = [low, value, high].map(|end| possible(end, metric));
        let (most, range_end) =
            prediction.ceiling.map_or((f64::INFINITY, f64::INFINITY), |ceiling| (ceiling.most, ceiling.range_end));
        let [low, value, high] = [low.min(most), value.min(most), high.min(range_end)];
        prediction.derivation.push_str(&format!(
            "; on {} {:.2} to {:.2} times that: {}",
            machines(calibration.machines),
            calibration.low,
            calibration.high,
            plain(value, metric.unit)
        ));
        Prediction { value, low, high, calibration: Some(calibration), ..prediction }
    }

    /// How far a figure may lie from its formula: a metric may be predicted by one formula at one case and by another at the next.
    fn off(&self, metric: &Metric, case: &Case, formula: Cow<'static, str>) -> Option<(OneMore, Calibration)> {
        let key = (metric.id, formula);
        let family = family(self.machines.iter(), &key)?;
        let range = off_a_formula(&self.about_formulas, &subject(metric), &self.kin, (&family, case))?;
        let half = self.deviations * range.deviation;
        let [low, high] = [-half, half].map(|away| (range.middle + away).exp());
        Some((range, Calibration { low, high, figures: family.figures(), machines: family.machines() }))
    }

    /// Whether a metric's yardstick tells more than its formula.
    pub fn comes_first(&self, metric: &Metric) -> bool {
        self.yardsticks.get(&metric.id).is_some_and(|yardstick| yardstick.before_formula)
    }

    /// A prediction of a figure by what it is on these machines, where no formula tells; or why there is none.
    pub(crate) fn of_a_class(
        &self,
        facts: &Facts<'_>,
        metric: &Metric,
        case: &Case,
        why: NoPrediction,
    ) -> Result<Prediction, NoPrediction> {
        let by = match self.yardsticks.get(&metric.id) {
            Some(Yardstick { by: None, .. }) => return Err(why),
            Some(Yardstick { by: Some((by, at)), .. }) => Some((*by, *at)),
            None => None,
        };
        let figures = self.figures(facts.machine(), metric, case);
        // By the yardstick where any machine has it: a mean of both would be of nothing.
        let scaled: Option<Vec<Scaled<'_>>> = by.map(|(by, at)| {
            figures
                .iter()
                .filter_map(|(machine, figure)| self.scaled(facts, machine, *figure, (by, at), case))
                .collect()
        });
        let scaled = scaled.filter(|scaled| !scaled.is_empty());
        // What a run that measured the yardstick scales is not told unscaled by one that did not: a figure has one prediction.
        if let (Some((by, _)), None) = (by, &scaled)
            && figures.iter().any(|(machine, _)| machine.figures.contains_key(&by.id))
        {
            return Err(NoPrediction::because(format!("it is scaled by {}, which this run did not measure", by.id)));
        }
        let own: Vec<(&Known, f64)> = match &scaled {
            Some(scaled) => scaled.iter().map(|one| (one.machine, one.figure + one.slower)).collect(),
            None => figures.clone(),
        };
        let spread = if scaled.is_some() { &self.over_yardsticks } else { &self.of_anything };
        let Some(range) = one_more(spread, &subject(metric), &self.kin, &own) else { return Err(why) };
        let half = self.deviations * range.deviation;
        let [low, value, high] = [-half, 0.0, half].map(|away| possible((range.middle + away).exp(), metric));
        let in_words = |figure: f64| plain(figure.exp(), metric.unit);
        let (derivation, inputs) = match &scaled {
            Some(scaled) => {
                let parts = scaled.iter().map(|one| {
                    format!("{} on {} x {:.2} by {}", in_words(one.figure), one.machine.name, one.slower.exp(), one.by)
                });
                let inputs = scaled.iter().map(|one| Input {
                    name: format!("{}, here over {}", one.by, one.machine.name),
                    value: one.slower.exp(),
                    unit: Unit::Ratio,
                    source: "measured in this run and there".into(),
                });
                (parts.collect::<Vec<_>>().join(", "), inputs.collect())
            }
            None => {
                let parts =
                    figures.iter().map(|(machine, figure)| format!("{} on {}", in_words(*figure), machine.name));
                (parts.collect::<Vec<_>>().join(", "), Vec::new())
            }
        };
        let formula = match by.filter(|_| scaled.is_some()) {
            Some((by, _)) => format!("the same elsewhere x {} here over there", by.id),
            None => "the same elsewhere".into(),
        };
        let derivation = format!("{derivation}; no formula, since {}", why.0);
        Ok(Prediction {
            value,
            low,
            high,
            basis: Basis::Elsewhere,
            formula,
            inputs,
            derivation,
            sources: Vec::new(),
            calibration: None,
            formula_name: Cow::Borrowed("the same elsewhere"),
            ceiling: None,
        })
    }

    /// A figure on each of the machines that tell of it: their names, and its values in the metric's unit.
    pub fn on_others(&self, here: &Machine, metric: &Metric, case: &Case) -> Vec<(&str, f64)> {
        let figures = self.figures(here, metric, case).into_iter();
        figures.map(|(machine, figure)| (machine.name.as_str(), figure.exp())).collect()
    }

    /// The same as natural logarithms.
    fn figures(&self, here: &Machine, metric: &Metric, case: &Case) -> Vec<(&Known, f64)> {
        let is_told_by = |machine: &&Known| machine.cpus == cpus(here) || !(self.takes_all_cpus)(metric, case);
        self.machines
            .iter()
            .filter(is_told_by)
            .filter_map(|machine| Some((machine, self.there(machine.figures.get(&metric.id)?, metric, case)?)))
            .collect()
    }

    /// A figure of another machine at a case, or at the one in its place.
    fn there(&self, cases: &[(Case, f64)], metric: &Metric, case: &Case) -> Option<f64> {
        if self.of_parts.contains(&metric.id) {
            return Some(middle(cases));
        }
        self.sizes.known(&metric.id, case, cases)
    }

    /// A figure of another machine by its yardstick, if both machines have measured that.
    fn scaled<'a>(
        &self,
        facts: &Facts<'_>,
        machine: &'a Known,
        figure: f64,
        (by, which): (&Metric, At),
        case: &Case,
    ) -> Option<Scaled<'a>> {
        let there = machine.figures.get(&by.id)?;
        let here = |case: &Case| facts.measured(by, case).ok().map(|input| input.value).filter(|value| *value > 0.0);
        let slower = match which {
            At::SameCase => here(case)?.ln() - self.there(there, by, case)?,
            At::AllCases => {
                let each: Vec<f64> = there.iter().filter_map(|(case, there)| Some(here(case)?.ln() - there)).collect();
                if each.is_empty() {
                    return None;
                }
                mean(&each)
            }
        };
        Some(Scaled { machine, figure, slower, by: by.id })
    }
}

/// A figure of another machine, and how much more its yardstick is here: natural logarithms.
struct Scaled<'a> {
    machine: &'a Known,
    figure: f64,
    slower: f64,
    by: Name,
}

fn machines(count: usize) -> String {
    match count {
        1 => "one other machine".into(),
        several => format!("{several} other machines"),
    }
}

/// A figure within what is physically possible.
fn possible(value: f64, metric: &Metric) -> f64 {
    let value = metric.floor.map_or(value, |floor| value.max(floor));
    metric.ceiling.map_or(value, |ceiling| value.min(ceiling))
}

fn known(probes: &[&Probe], other: &OtherMachine, rules: &Rules<'_>) -> Known {
    let headlines = Headlines::of(other, Sizes::of(probes, rules, &other.machine));
    let look_up = |metric: &str, case: &Case| headlines.at(metric, case);
    let facts = Facts::new(&other.machine, &look_up);
    let (name, kin, cpus) = (other.name.clone(), Kin::of(&other.machine), cpus(&other.machine));
    let [figures, half_widths] = [Logs::new(), Logs::new()];
    let mut known = Known { name, kin, cpus, figures, off: Off::new(), half_widths };
    for probe in probes {
        for metric in probe.metrics {
            for (case, found) in
                headlines.by_metric.get(&metric.id).into_iter().flatten().filter(|(_, found)| found.value > 0.0)
            {
                let log = found.value.ln();
                known.figures.entry(metric.id).or_default().push((case.clone(), log));
                let half_width = found.half_width / found.value;
                known.half_widths.entry(metric.id).or_default().push((case.clone(), half_width));
                let predicted =
                    facts.by_formula(|facts| (probe.predict)(facts, metric, case)).map(|found| found.prediction);
                if let Some(predicted) = predicted.ok().filter(|predicted| predicted.value > 0.0) {
                    let off = log - predicted.value.ln();
                    known.off.entry((metric.id, predicted.formula_name)).or_default().push((case.clone(), off));
                }
            }
        }
    }
    known
}

/// CPUs that a run may use.
fn cpus(machine: &Machine) -> usize {
    machine.topology.allowed.get().map_or(1, Vec::len)
}

impl Known {
    /// Whether a formula tells of a metric at a case.
    fn has_formula(&self, metric: Name, case: &Case) -> bool {
        self.off.iter().any(|((of, _), cases)| *of == metric && at(cases, case).is_some())
    }

    /// How much more a metric is here than on another machine, at all cases of both: natural logarithms.
    fn over<'a>(&'a self, other: &'a Self, metric: Name) -> Vec<(&'a Case, f64)> {
        let [here, there] = [self, other].map(|machine| machine.figures.get(&metric).map_or(&[][..], Vec::as_slice));
        here.iter().filter_map(|(case, figure)| Some((case, figure - at(there, case)?))).collect()
    }
}

/// By pair of machines their relation, and halves of the squares of how far a metric lies apart, over its yardstick or of itself: at the
/// cases of both that are `asked` for. Pairs without one are left out.
fn between(
    machines: &[Known],
    metric: Name,
    by: Option<(&Metric, At)>,
    asked: impl Fn(&Known, &Case) -> bool,
) -> Vec<(Relation, Vec<f64>)> {
    let mut pairs = Vec::new();
    for (number, one) in machines.iter().enumerate() {
        for other in &machines[number + 1..] {
            let yardstick = by.map(|(by, at)| (one.over(other, by.id), at));
            let usual = |each: &[(&Case, f64)]| {
                (!each.is_empty()).then(|| mean(&each.iter().map(|(_, more)| *more).collect::<Vec<f64>>()))
            };
            let expected = |case: &Case| match &yardstick {
                None => Some(0.0),
                Some((each, At::AllCases)) => usual(each),
                Some((each, At::SameCase)) => each.iter().find(|(of, _)| *of == case).map(|(_, more)| *more),
            };
            let both = one.over(other, metric).into_iter();
            let both = both.filter(|(case, _)| asked(one, case) && asked(other, case));
            // The difference of two has twice the variance of one.
            let squares: Vec<f64> =
                both.filter_map(|(case, more)| Some((more - expected(case)?).powi(2) / 2.0)).collect();
            if !squares.is_empty() {
                pairs.push((one.kin.relation(&other.kin), squares));
            }
        }
    }
    pairs
}

/// What these machines tell of a metric by a formula.
fn family<'a>(machines: impl Iterator<Item = &'a Known>, formula: &(Name, Cow<'static, str>)) -> Option<Family<'a>> {
    Family::of(machines.filter_map(|machine| Some((machine, machine.off.get(formula)?.as_slice()))))
}

/// Metrics of probes by id.
fn metrics(probes: &[&Probe]) -> BTreeMap<Name, &'static Metric> {
    probes.iter().flat_map(|probe| probe.metrics).map(|metric| (metric.id, *metric)).collect()
}

/// How far figures of these machines lie from their formulas.
fn about_formulas(metrics: &BTreeMap<Name, &'static Metric>, machines: &[&Known]) -> Spread {
    let formulas: BTreeSet<_> = machines.iter().flat_map(|machine| machine.off.keys()).collect();
    let families = formulas.into_iter().filter_map(|formula| {
        let family = family(machines.iter().copied(), formula)?;
        Some((subject(metrics.get(&formula.0)?), family))
    });
    Spread::about_formulas(families)
}

/// How far a figure of a machine of this kin lies from its formula, by how far those of others do.
fn off_a_formula(
    spread: &Spread,
    subject: &Subject,
    kin: &Kin,
    (family, case): (&Family<'_>, &Case),
) -> Option<OneMore> {
    let OneMore { middle, deviation } = one_more(spread, subject, kin, &family.own(case))?;
    Some(OneMore { middle, deviation: deviation * spread.times_usual(subject, family)?.sqrt() })
}

/// What a machine of this kin shows of a subject, by what others do.
fn one_more(spread: &Spread, subject: &Subject, kin: &Kin, own: &[(&Known, f64)]) -> Option<OneMore> {
    let known: Vec<(f64, Relation)> = own.iter().map(|(machine, value)| (*value, kin.relation(&machine.kin))).collect();
    let between = |one: usize, other: usize| own[one].0.kin.relation(&own[other].0.kin);
    spread.effects(subject)?.one_more(&known, between)
}

/// How many standard deviations hold as large a share of the figures of each of these machines as a range is to hold, where it is predicted
/// by the others alone: distances have no normal distribution, and what a handful of machines has in common is less than what one more shows.
/// The interval of a figure may touch the range. Those of a normal distribution where fewer than two machines are known.
fn deviations(metrics: &BTreeMap<Name, &'static Metric>, machines: &[Known]) -> f64 {
    let of = |number: usize| {
        let here = &machines[number];
        let others: Vec<&Known> = machines[..number].iter().chain(&machines[number + 1..]).collect();
        let spread = about_formulas(metrics, &others);
        let mut distances = Vec::new();
        for (formula, cases) in &here.off {
            let Some((family, metric)) = family(others.iter().copied(), formula).zip(metrics.get(&formula.0)) else {
                continue;
            };
            distances.extend(cases.iter().filter_map(|(case, off)| {
                let range = off_a_formula(&spread, &subject(metric), &here.kin, (&family, case))?;
                let half_width = at(here.half_widths.get(&metric.id)?, case)?;
                Some(((off - range.middle).abs() - half_width).max(0.0) / range.deviation)
            }));
        }
        Some(Samples::new(distances).ok()?.sorted().quantile(RANGE))
    };
    (0..machines.len()).filter_map(of).fold(normal_quantile(f64::midpoint(1.0, RANGE)), f64::max)
}

fn at(cases: &[(Case, f64)], case: &Case) -> Option<f64> {
    cases.iter().find(|(known, _)| known == case).map(|(_, value)| *value)
}

fn middle(cases: &[(Case, f64)]) -> f64 {
    mean(&cases.iter().map(|(_, off)| *off).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use kelvin_model::{Ceiling, Fact, MeasuredValue};

    use super::*;
    use crate::probe::{Effort, Method, ProbeKind};
    use crate::stop::Stop;

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
        inputs: &[],
        cases: |_: &Machine, _: Effort| Vec::new(),
        run: |_, _| Err(Stop::fail("it is never run")),
        predict: |facts, metric, _| match metric.id == TWICE.id {
            false => Err(NoPrediction::because("nothing is published")),
            true => {
                let call = facts.measured(&CALL, &Case::new())?;
                let value = 2.0 * call.value;
                let (formula, derivation) = ("2 x call".into(), "2 x call".into());
                let (basis, inputs, sources) = (Basis::Derived, vec![call], Vec::new());
                let (low, high) = (value / 4.0, value * 4.0);
                let formula_name = if facts.machine().topology.allowed.get().is_some() { "stated" } else { "calls" };
                let ceiling = (formula_name == "stated").then_some(Ceiling { most: value, range_end: 1.02 * value });
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
    const RULES: Rules<'_> =
        Rules { yardsticks: &[by(&WORK, Some((&CALL, At::AllCases))), by(&SETTING, None)], ..Rules::NONE };

    /// What these machines tell of one of this model, with nothing planned.
    fn elsewhere(others: &[OtherMachine], rules: &Rules<'_>, model: u32) -> Elsewhere {
        Elsewhere::of(&[&PROBE], others, rules, (&machine(model), &[]))
    }

    const fn by(metric: &'static Metric, by: Option<(&'static Metric, At)>) -> Yardstick {
        Yardstick { metric, by, before_formula: false }
    }

    fn machine(model: u32) -> Machine {
        let mut machine = Machine::default();
        machine.cpu.model = Fact::known(model, "a test");
        machine
    }

    /// A machine on which a call takes this long, two calls and the work as long as said.
    fn other(model: u32, figures: [(&'static Metric, f64); 4]) -> OtherMachine {
        let figures =
            figures.map(|(metric, value)| Figure { metric: metric.id, case: Case::new(), value, half_width: 0.0 });
        OtherMachine { name: format!("machine {model}"), machine: machine(model), figures: figures.into() }
    }

    fn predicted(elsewhere: &Elsewhere, metric: &Metric, half_width: f64) -> Result<Prediction, NoPrediction> {
        let (here, case) = (machine(9), Case::new());
        let measured = |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width });
        let facts = Facts::new(&here, &measured).beside(elsewhere);
        facts.predict((metric, &case), |facts| (PROBE.predict)(facts, metric, &case))
    }

    fn one_machine() -> [OtherMachine; 1] {
        // Two calls take 1.21 times what the formula says, and the work as long as five calls.
        [other(1, [(&CALL, 100.0), (&TWICE, 242.0), (&WORK, 500.0), (&SETTING, 7.0)])]
    }

    #[test]
    fn a_formula_is_taken_as_it_was_off_elsewhere() {
        let elsewhere = elsewhere(&one_machine(), &RULES, 9);
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
    fn formulas_of_one_text_share_no_correction_and_a_ceiling_is_not_raised() {
        let predicted = |others: &[OtherMachine]| {
            let mut here = machine(9);
            here.topology.allowed = Fact::known(vec![0], "a test");
            let measured =
                |id: &str, _: &Case| (id == "test.call").then_some(MeasuredValue { value: 200.0, half_width: 0.0 });
            let elsewhere = Elsewhere::of(&[&PROBE], others, &RULES, (&here, &[]));
            let facts = Facts::new(&here, &measured).beside(&elsewhere);
            facts.predict((&TWICE, &Case::new()), |facts| (PROBE.predict)(facts, &TWICE, &Case::new())).unwrap()
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
    fn no_machine_is_judged_by_itself() {
        let others = one_machine();
        let own_kind = elsewhere(&others, &RULES, 1);
        let found = predicted(&own_kind, &TWICE, 0.0).unwrap();
        assert_eq!((found.value, found.low, found.high, found.calibration), (400.0, 100.0, 1600.0, None));
        assert_eq!(predicted(&own_kind, &WORK, 0.0).unwrap_err().0, "nothing is published");
    }

    #[test]
    fn what_no_formula_tells_is_taken_from_elsewhere_by_its_yardstick() {
        let known = elsewhere(&one_machine(), &RULES, 9);
        let found = predicted(&known, &WORK, 0.0).unwrap();
        assert!((found.value - 1000.0).abs() < 1e-6, "a call takes twice as long here, so does the work: {found:?}");
        assert_eq!(
            (found.basis, found.formula.as_str()),
            (Basis::Elsewhere, "the same elsewhere x test.call here over there")
        );
        assert_eq!(found.derivation, "500 ns on machine 1 x 2.00 by test.call; no formula, since nothing is published");
        assert_eq!(predicted(&known, &SETTING, 0.0).unwrap_err().0, "nothing is published");
        // Without its yardstick, as it is there: in a wider range.
        let as_it_is = predicted(&known, &CALL, 0.0).unwrap();
        assert!((as_it_is.value - 100.0).abs() < 1e-9);
        assert!(as_it_is.high / as_it_is.low > found.high / found.low);
        // Two that agree tell more than one.
        let [first] = one_machine();
        let second = other(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0), (&SETTING, 7.0)]);
        let both = elsewhere(&[first, second], &RULES, 9);
        let narrower = predicted(&both, &WORK, 0.0).unwrap();
        assert!((narrower.value - 1000.0).abs() < 1e-6 && narrower.high / narrower.low < found.high / found.low);
    }

    #[test]
    fn a_size_that_another_machine_has_not_stands_for_the_one_in_its_place() {
        let size = |bytes| Case::new().with("bytes", bytes);
        let figures = [(16, 1.0), (64, 4.0)].map(|(bytes, value)| Figure {
            metric: WORK.id,
            case: size(bytes),
            value,
            half_width: 0.0,
        });
        let other = OtherMachine { name: "another".into(), machine: machine(1), figures: figures.into() };
        let planned =
            |bytes| Planned { probe: Name::new("test"), metrics: vec![WORK.id], case: size(bytes), only_input: false };
        let rules = Rules { sized: &[&WORK], ..Rules::NONE };
        let of = |rules: &Rules<'_>, plan: &[Planned]| {
            Elsewhere::of(&[&PROBE], std::slice::from_ref(&other), rules, (&machine(9), plan))
        };
        let (here, nothing) = (machine(9), |_: &str, _: &Case| None);
        let value = |elsewhere: &Elsewhere, bytes| {
            let facts = Facts::new(&here, &nothing).beside(elsewhere);
            let found = facts.predict((&WORK, &size(bytes)), |facts| (PROBE.predict)(facts, &WORK, &size(bytes)));
            found.ok().map(|found| found.value.round())
        };
        let of_any = of(&Rules::NONE, &[planned(32), planned(8)]);
        assert_eq!((value(&of_any, 16), value(&of_any, 32)), (Some(1.0), None));
        let sized = of(&rules, &[planned(32), planned(8)]);
        assert_eq!((value(&sized, 8), value(&sized, 32)), (Some(1.0), Some(4.0)));
        let of_more_sizes = of(&rules, &[planned(32), planned(8), planned(1)]);
        assert_eq!(value(&of_more_sizes, 32), None, "three sizes are in no two places");
        // The machine's own figures stand for those that a default run of today would measure there.
        let sizes = Sizes(HashMap::from([(WORK.id, vec![size(8), size(32)])]));
        let headlines = Headlines::of(&other, sizes);
        let value = |bytes| headlines.at(&WORK.id, &size(bytes)).map(|found| found.value);
        assert_eq!([8, 16, 32, 64].map(value), [Some(1.0), Some(1.0), Some(4.0), Some(4.0)]);
        assert_eq!(value(128), None);
    }

    #[test]
    fn a_part_of_the_machine_stands_for_all_that_another_has() {
        let figure = |place: u64, value| Figure {
            metric: WORK.id,
            case: Case::new().with("place", place),
            value,
            half_width: 0.0,
        };
        let other = OtherMachine {
            name: "another".into(),
            machine: machine(1),
            figures: vec![figure(0, 40.0), figure(1, 90.0)],
        };
        let of = |rules: &Rules<'_>| elsewhere(std::slice::from_ref(&other), rules, 9);
        let (here, nothing, case) = (machine(9), |_: &str, _: &Case| None, Case::new().with("place", 7u64));
        let value = |elsewhere: &Elsewhere| {
            let facts = Facts::new(&here, &nothing).beside(elsewhere);
            facts.predict((&WORK, &case), |facts| (PROBE.predict)(facts, &WORK, &case)).ok().map(|found| found.value)
        };
        assert_eq!(value(&of(&Rules::NONE)), None);
        let found = value(&of(&Rules { of_parts: &[&WORK], ..Rules::NONE })).unwrap();
        assert!((found - 60.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn a_yardstick_may_come_before_a_formula() {
        let first = Yardstick { before_formula: true, ..by(&TWICE, Some((&CALL, At::AllCases))) };
        let yardsticks = [first];
        let rules = Rules { yardsticks: &yardsticks, ..Rules::NONE };
        let found = predicted(&elsewhere(&one_machine(), &rules, 9), &TWICE, 0.0).unwrap();
        // 242 ns there, and a call takes twice as long here.
        assert!((found.value - 484.0).abs() < 1e-9 && found.basis == Basis::Elsewhere, "{found:?}");
        assert!(found.derivation.ends_with("the figure of other machines tells more than its formula"), "{found:?}");
        // With no other machine there is the formula.
        let alone = predicted(&elsewhere(&one_machine(), &rules, 1), &TWICE, 0.0).unwrap();
        assert_eq!((alone.value, alone.basis), (400.0, Basis::Derived));
    }

    /// A run that measured all of it, and one that did not: either the same prediction or none.
    #[test]
    fn a_figure_has_one_prediction_whatever_else_the_run_measured() {
        let predicted = |rules: &Rules<'_>, metric: &Metric| {
            let (here, case, elsewhere) = (machine(9), Case::new(), elsewhere(&one_machine(), rules, 9));
            let facts = Facts::new(&here, &|_, _| None).beside(&elsewhere);
            facts.predict((metric, &case), |facts| (PROBE.predict)(facts, metric, &case))
        };
        let scaled = predicted(&RULES, &WORK).unwrap_err();
        assert_eq!(scaled.0, "it is scaled by test.call, which this run did not measure");
        let derived = predicted(&RULES, &TWICE).unwrap_err();
        assert_eq!(derived.0, "it is derived from test.call, which this run did not measure");
        let first = Yardstick { before_formula: true, ..by(&TWICE, Some((&CALL, At::AllCases))) };
        let rules = Rules { yardsticks: &[first], ..Rules::NONE };
        assert_eq!(predicted(&rules, &TWICE).unwrap_err().0, scaled.0);
        // What nothing scales is told as it is, in either run.
        assert!(predicted(&Rules::NONE, &WORK).is_ok());
    }

    #[test]
    fn yardsticks_that_hold_on_the_machines_that_are_known_make_narrow_ranges() {
        // The work takes five calls on the first, and this many times that on the second.
        let range = |times: f64| {
            let [first] = one_machine();
            let second = other(2, [(&CALL, 50.0), (&TWICE, 121.0), (&WORK, 250.0 * times), (&SETTING, 7.0)]);
            let found = predicted(&elsewhere(&[first, second], &RULES, 9), &WORK, 0.0).unwrap();
            found.high / found.low
        };
        let one = predicted(&elsewhere(&one_machine(), &RULES, 9), &WORK, 0.0).unwrap();
        assert!(range(1.0) < range(1.2) && range(1.2) < range(2.0));
        assert!(range(1.0) < one.high / one.low, "a second machine that agrees tells that the yardstick holds");
    }

    /// Half of a range by how machines lie from their formulas when each is told by the others alone.
    #[test]
    fn ranges_hold_the_machine_that_is_predicted_worst() {
        let of = |times: &[f64]| {
            let machines = times.iter().enumerate().map(|(model, times)| {
                other(model as u32 + 1, [(&CALL, 100.0), (&TWICE, 200.0 * times), (&WORK, 500.0), (&SETTING, 7.0)])
            });
            elsewhere(&machines.collect::<Vec<_>>(), &RULES, 9).deviations
        };
        let normal = normal_quantile(0.95);
        assert_eq!((of(&[]), of(&[1.2]), of(&[1.1, 1.1, 1.1])), (normal, normal, normal));
        // Two that agree tell nothing of a third that is three times as far from the formula as they are.
        let worst = of(&[1.02, 1.02, 1.5]);
        assert!(worst > 2.0 * normal, "{worst}");
    }

    #[test]
    fn what_many_cpus_do_is_told_by_machines_of_as_many() {
        let mut others = one_machine();
        let rules = Rules { takes_all_cpus: |metric, _| metric.id == WORK.id, ..RULES };
        let is_told = |others: &[OtherMachine]| predicted(&elsewhere(others, &rules, 9), &WORK, 0.0).is_ok();
        assert!(is_told(&others));
        others[0].machine.topology.allowed = Fact::known(vec![0, 1, 2], "a test");
        assert!(!is_told(&others));
        assert!(predicted(&elsewhere(&others, &RULES, 9), &WORK, 0.0).is_ok());
    }

    #[test]
    fn what_has_two_modes_keeps_the_range_of_its_formula() {
        let rules = Rules { has_modes: |metric, _| metric.id == TWICE.id, ..Rules::NONE };
        let of = |rules: &Rules<'_>| predicted(&elsewhere(&one_machine(), rules, 9), &TWICE, 0.0).unwrap();
        assert!(of(&rules).calibration.is_none() && of(&Rules::NONE).calibration.is_some());
    }

    #[test]
    fn no_range_goes_beyond_what_is_possible() {
        static SHARE: Metric = Metric { ceiling: Some(600.0), floor: Some(450.0), ..WORK };
        let elsewhere = elsewhere(&one_machine(), &Rules::NONE, 9);
        let found = predicted(&elsewhere, &SHARE, 0.0).unwrap();
        assert_eq!((found.low, found.high), (450.0, 600.0));
    }
}
