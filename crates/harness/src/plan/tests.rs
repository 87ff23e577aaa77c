use kelvin_core::{Axis, AxisScale};

use super::*;

const N: Axis = Axis::new("n", "number", AxisScale::Linear);

mod inputs {
    use super::*;
    use crate::{Bench, ProbeError};
    use kelvin_core::{Axis, AxisScale, Metric, Prediction};

    const SIZE: Axis = Axis::new("size", "size", AxisScale::Bytes);
    static BASE: Metric = Metric::duration("test.base", "a base").with_axes([SIZE]);
    static MIDDLE: Metric = Metric::duration("test.middle", "in the middle");
    static TOP: Metric = Metric::duration("test.top", "on top").with_axes([SIZE]);

    fn of_size(size: u64) -> Case {
        Case::new().with_number(SIZE, size)
    }

    fn sizes(_: &Machine, effort: Effort) -> Vec<Case> {
        let cases = [1, 2, 3, 4].map(of_size);
        if effort == Effort::Quick { cases[..1].to_vec() } else { cases.to_vec() }
    }

    fn run_nothing(_: &mut Bench<'_>, _: &Case) -> Result<(), ProbeError> {
        Ok(())
    }

    fn predict_nothing(_: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
        Err(NoPrediction::new("a test"))
    }

    /// Asks for the middle, then for the base at size 4.
    fn of_top(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
        facts.measured(&MIDDLE, &Case::new())?;
        facts.measured(&BASE, &of_size(4))?;
        Err(NoPrediction::new("a test"))
    }

    fn of_middle(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
        facts.measured(&BASE, &of_size(2))?;
        Err(NoPrediction::new("a test"))
    }

    const fn probe(id: &'static str, metrics: &'static [&'static Metric]) -> Probe {
        let (summary, kind) = ("", ProbeKind::Measure);
        Probe { id, summary, kind, method: "", metrics, cases: sizes, run: run_nothing, predict: predict_nothing }
    }

    /// Asks for itself at half the size.
    fn of_base(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
        facts.measured(&BASE, &of_size(SIZE.number_in(case).unwrap_or(0) / 2))?;
        Err(NoPrediction::new("a test"))
    }

    static BASE_PROBE: Probe = Probe { predict: of_base, ..probe("test.base", &[&BASE]) };
    static MIDDLE_PROBE: Probe =
        Probe { cases: |_, _| vec![Case::new()], predict: of_middle, ..probe("test.middle", &[&MIDDLE]) };
    static TOP_PROBE: Probe = Probe { predict: of_top, ..probe("test.top", &[&TOP]) };
    static SILENT_PROBE: Probe = probe("other.top", &[&TOP]);

    fn sources<'a>(probes: &'a [&'static Probe], machine: &'a Machine) -> PlanContext<'a> {
        PlanContext { probes, machine, references: None }
    }

    fn base_sizes(name: &str) -> Vec<u64> {
        let probes = [&BASE_PROBE, &MIDDLE_PROBE, &TOP_PROBE, &SILENT_PROBE];
        let (names, machine) = ([name.to_owned()], Machine::default());
        let plan = Plan::new(&sources(&probes, &machine), ProbeKind::Measure, &names, Effort::Default).unwrap();
        let base = plan.units.iter().filter(|unit| unit.probe.id == "test.base");
        base.filter_map(|unit| SIZE.number_in(&unit.case)).collect()
    }

    #[test]
    fn changed_cases_keep_former_ones_for_other_probes() {
        let probes: Vec<&'static Probe> = vec![&BASE_PROBE, &MIDDLE_PROBE, &TOP_PROBE];
        let machine = Machine::default();
        let context = PlanContext { probes: &probes, machine: &machine, references: None };
        let plan = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let plan = Plan::new(&context, ProbeKind::Measure, &names, Effort::Default).unwrap();
            let change = |case: &Case| Case::new().with_number(SIZE, 10 * SIZE.number_in(case).unwrap_or(0));
            let units = plan.change_cases(|probe| probe.id == BASE_PROBE.id, change).units;
            units
                .into_iter()
                .map(|unit| (unit.probe.id, SIZE.number_in(&unit.case), unit.only_input))
                .collect::<Vec<_>>()
        };
        // Each size of the base needs half of it, also at the other sizes: those of 5 and 15 there are not.
        let changed = [10, 20, 30, 40].map(|size| ("test.base", Some(size), false));
        assert_eq!(plan(&["test.base"]), changed);
        // The middle needs the base at the former size of 2.
        let middle = plan(&["test.base", "test.middle"]);
        let inputs: Vec<_> = middle.iter().filter(|unit| unit.2).collect();
        assert_eq!(inputs, [&("test.base", Some(2), true)]);
        assert_eq!(middle.len(), 4 + 1 + 1);
        // Nothing of the base is asked for.
        assert_eq!(plan(&["test.middle"]), [("test.base", Some(2), true), ("test.middle", None, false)]);
    }

    #[test]
    fn cases_that_become_one_are_measured_once() {
        let probes: Vec<&'static Probe> = vec![&BASE_PROBE];
        let machine = Machine::default();
        let plan = Plan::new(&sources(&probes, &machine), ProbeKind::Measure, &[], Effort::Default).unwrap();
        let sizes =
            |plan: &Plan| -> Vec<u64> { plan.units.iter().filter_map(|unit| SIZE.number_in(&unit.case)).collect() };
        let omitted = [3, 5].map(|size| (&BASE_PROBE, Case::new().with_number(SIZE, size), SkipReason::new("a test")));
        let plan = Plan { omissions: omitted.into(), ..plan };
        let limited = |limit: u64| {
            let change = |case: &Case| Case::new().with_number(SIZE, SIZE.number_in(case).unwrap_or(0).min(limit));
            let plan = plan.clone().change_cases(|probe| probe.id == BASE_PROBE.id, change);
            (sizes(&plan), plan.omissions.len())
        };
        assert_eq!(sizes(&plan), [1, 2, 3, 4]);
        assert_eq!(limited(3), (vec![1, 2, 3], 0));
        assert_eq!(limited(9), (vec![1, 2, 3, 4], 1));
    }

    #[test]
    fn inputs_are_planned_at_required_cases_only() {
        // At size 2 the base would like to be measured at 1 as well, and the middle below the top at 2.
        assert_eq!(base_sizes("test.middle"), [2]);
        assert_eq!(base_sizes("test.top"), [4]);
    }

    #[test]
    fn unrequested_input_is_not_planned() {
        assert!(base_sizes("other.top").is_empty());
    }

    /// Asks for the base at its own size.
    fn of_above(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
        facts.measured(&BASE, case)?;
        Err(NoPrediction::new("a test"))
    }

    #[test]
    fn retained_cases_keep_only_their_inputs() {
        static ABOVE: Metric = Metric::duration("above.top", "above").with_axes([SIZE]);
        static LEAF: Probe = probe("test.base", &[&BASE]);
        static PROBE: Probe = Probe { predict: of_above, ..probe("above.top", &[&ABOVE]) };
        let (probes, machine) = ([&LEAF, &PROBE], Machine::default());
        let names = ["above".to_owned()];
        let plan = Plan::new(&sources(&probes, &machine), ProbeKind::Measure, &names, Effort::Quick).unwrap();
        assert_eq!((plan.units.len(), plan.omissions.len()), (2, 3));
        let first = plan.clone().retain_cases(|case| *case == of_size(1));
        assert_eq!((first.units.len(), first.omissions.len()), (2, 0));
        let other = plan.retain_cases(|case| *case == of_size(2));
        assert_eq!((other.units.len(), other.omissions.len()), (0, 1), "no input of what is not asked for");
    }

    /// Asks for the base at size 4, and without it at size 1.
    fn of_either(facts: &PredictionInputs<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
        facts.measured(&BASE, &of_size(4)).or_else(|_| facts.measured(&BASE, &of_size(1)))?;
        Err(NoPrediction::new("a test"))
    }

    #[test]
    fn unmeasured_input_falls_back_to_next() {
        static EITHER: Metric = Metric::duration("above.either", "either").with_axes([SIZE]);
        static LEAF: Probe = probe("test.base", &[&BASE]);
        static PROBE: Probe = Probe { predict: of_either, ..probe("above.either", &[&EITHER]) };
        let (probes, machine) = ([&LEAF, &PROBE], Machine::default());
        let names = ["above".to_owned()];
        for (effort, size) in [(Effort::Quick, 1), (Effort::Default, 4)] {
            let plan = Plan::new(&sources(&probes, &machine), ProbeKind::Measure, &names, effort).unwrap();
            let inputs: Vec<Case> =
                plan.units.into_iter().filter(|unit| unit.only_input).map(|unit| unit.case).collect();
            assert_eq!(inputs, [of_size(size)], "{effort:?}");
        }
    }

    #[test]
    fn input_may_be_case_of_same_probe() {
        let (probes, machine) = ([&BASE_PROBE], Machine::default());
        let names = ["test.base".to_owned()];
        let plan = Plan::new(&sources(&probes, &machine), ProbeKind::Measure, &names, Effort::Default).unwrap();
        let plan = plan.retain_cases(|case| *case == of_size(4));
        let units: Vec<_> = plan.units.iter().map(|unit| (SIZE.number_in(&unit.case), unit.only_input)).collect();
        // Half the size; what that rests on itself nobody asked for.
        assert_eq!(units, [(Some(2), true), (Some(4), false)]);
    }

    /// The sizes at the top that fit into this many seconds, 4 rounds of a unit taking 0.4 s but those of size 2 10 s, and what else.
    fn fit_within(time: f64) -> (Vec<u64>, Vec<&'static str>, Vec<u64>) {
        let (probes, machine) = ([&BASE_PROBE, &MIDDLE_PROBE, &TOP_PROBE], Machine::default());
        let names = ["test.top".to_owned()];
        let plan = Plan::new(&sources(&probes, &machine), ProbeKind::Measure, &names, Effort::Default).unwrap();
        let expected = |probe: &Probe, case: &Case| match (probe.id, SIZE.number_in(case)) {
            ("test.top", Some(2)) => ExpectedCost::estimated(Duration::from_millis(2495)),
            _ => ExpectedCost::estimated(Duration::from_millis(95)),
        };
        let time = Duration::from_secs_f64(time / EQUAL_PASS_SHARE + 1e-3);
        let plan = plan.with_expected_costs(expected).fit_to_budget(time, 4);
        let (inputs, requested): (Vec<PlanUnit>, Vec<PlanUnit>) =
            plan.units.into_iter().partition(|unit| unit.only_input);
        let size = |case: &Case| SIZE.number_in(case).unwrap();
        let omitted = plan.omissions.iter().map(|(_, case, _)| size(case)).collect();
        (
            requested.iter().map(|unit| size(&unit.case)).collect(),
            inputs.iter().map(|unit| unit.probe.id).collect(),
            omitted,
        )
    }

    #[test]
    fn over_budget_units_are_dropped_by_rank() {
        // A quick run measures size 1; the inputs come next, then the other sizes.
        let inputs = vec!["test.base", "test.middle"];
        assert_eq!(fit_within(12.0), (vec![1, 2, 3, 4], inputs.clone(), vec![]));
        assert_eq!(fit_within(2.0), (vec![1, 3, 4], inputs.clone(), vec![2]));
        assert_eq!(fit_within(1.6), (vec![1, 3], inputs.clone(), vec![2, 4]));
        assert_eq!(fit_within(1.2), (vec![1], inputs, vec![2, 3, 4]));
        assert_eq!(fit_within(0.4), (vec![1], vec![], vec![2, 3, 4]));
        assert_eq!(fit_within(0.3), (vec![], vec![], vec![1, 2, 3, 4]));
    }

    #[test]
    fn omitted_probe_keeps_its_metrics_in_plan() {
        let plan = Plan {
            units: vec![PlanUnit::new(&BASE_PROBE, of_size(1)), PlanUnit::new(&MIDDLE_PROBE, Case::new())],
            omissions: [(&TOP_PROBE, 3), (&BASE_PROBE, 2)]
                .map(|(probe, size)| (probe, of_size(size), SkipReason::new("a test")))
                .into(),
        };
        let measurements = plan.measurements();
        let summary =
            |entry: &PlannedMeasurement| (entry.probe.to_string(), entry.metrics.clone(), SIZE.number_in(&entry.case));
        let expected_entry = |probe: &Probe, metric: &Metric, size| (probe.id.to_owned(), vec![metric.id], size);
        let expected = [
            expected_entry(&BASE_PROBE, &BASE, Some(1)),
            expected_entry(&BASE_PROBE, &BASE, Some(2)),
            expected_entry(&MIDDLE_PROBE, &MIDDLE, None),
            expected_entry(&TOP_PROBE, &TOP, Some(3)),
        ];
        assert_eq!(measurements.iter().map(summary).collect::<Vec<_>>(), expected);
        assert_eq!(plan.metrics().iter().map(|metric| metric.id).collect::<Vec<_>>(), [BASE.id, MIDDLE.id, TOP.id]);
    }

    #[test]
    fn first_cases_precede_second_cases() {
        let unit = |probe, size, rank| PlanUnit { rank, ..PlanUnit::new(probe, of_size(size)) };
        let units = vec![
            unit(&BASE_PROBE, 1, PlanRank::Default),
            unit(&BASE_PROBE, 2, PlanRank::Quick),
            unit(&BASE_PROBE, 3, PlanRank::Quick),
            unit(&TOP_PROBE, 1, PlanRank::Quick),
            unit(&TOP_PROBE, 2, PlanRank::Baseline),
        ];
        assert_eq!(Plan { units, omissions: Vec::new() }.priorities(), [4, 1, 3, 2, 0]);
    }

    #[test]
    fn named_probe_is_planned_in_full() {
        assert_eq!(base_sizes("test"), [1, 2, 3, 4]);
    }
}

#[test]
fn merged_plans_share_units() {
    static PROBE: Probe = Probe {
        id: "a.probe",
        summary: "",
        kind: ProbeKind::Measure,
        method: "",
        metrics: &[],
        cases: |_, _| Vec::new(),
        run: |_, _| Ok(()),
        predict: |_, _, _| Err(kelvin_core::NoPrediction::new("a test")),
    };
    let case = |n| Case::new().with_number(N, n);
    let plan = |cases: &[(u64, bool)], omitted: &[u64]| Plan {
        units: cases.iter().map(|&(n, only_input)| PlanUnit { only_input, ..PlanUnit::new(&PROBE, case(n)) }).collect(),
        omissions: omitted.iter().map(|&n| (&PROBE, case(n), SkipReason::new("a test"))).collect(),
    };
    let merged = plan(&[(1, true), (2, false)], &[3]).merge(plan(&[(1, false), (2, true), (3, true)], &[4]));
    let units: Vec<(u64, bool)> =
        merged.units.iter().map(|unit| (N.number_in(&unit.case).unwrap(), unit.only_input)).collect();
    assert_eq!(units, [(1, false), (2, false), (3, true)]);
    let omitted: Vec<u64> = merged.omissions.iter().map(|(_, case, _)| N.number_in(case).unwrap()).collect();
    assert_eq!(omitted, [4]);
}
