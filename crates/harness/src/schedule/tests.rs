//! The schedule over scripted time: units with costs like real ones.

use std::time::Duration;

use super::*;

/// A budget that grows as far as it has to.
const EXTENDABLE: BudgetLimit = BudgetLimit::ExtendableTo(Duration::MAX);
const DEFAULT_SPEC: ScheduleSpec = ScheduleSpec { budget: 10e9, limit: EXTENDABLE, rounds: 8, target: 0.02, seed: 1 };
const FIXED_SPEC: ScheduleSpec = ScheduleSpec { limit: BudgetLimit::Fixed, ..DEFAULT_SPEC };

/// The overhead of a unit of a script, in nanoseconds.
#[derive(Clone, Copy)]
struct ScriptedUnit {
    expected: ExpectedCost,
    later_overhead: f64,
    /// Like `later_overhead`, in its first round, which makes what the others find.
    first_overhead: f64,
}

fn estimated_cost(milliseconds: f64) -> ExpectedCost {
    ExpectedCost::estimated(Duration::from_secs_f64(milliseconds / 1e3))
}

fn uniform_unit(milliseconds: f64) -> ScriptedUnit {
    let overhead = milliseconds * 1e6;
    ScriptedUnit { expected: estimated_cost(milliseconds), later_overhead: overhead, first_overhead: overhead }
}

/// What a run of a script came to.
struct PlayedSchedule {
    rounds: Vec<u32>,
    slices: Vec<Vec<f64>>,
    /// The unit of each round, in their order.
    order: Vec<usize>,
    /// The overhead of each round.
    overheads: Vec<Vec<f64>>,
    end_time: f64,
    omitted: Vec<usize>,
    announced: Vec<f64>,
    schedule: Schedule,
}

impl PlayedSchedule {
    fn total(&self, unit: usize) -> u32 {
        self.rounds[unit]
    }
}

fn tasks(script: &[ScriptedUnit]) -> Vec<UnitSpec> {
    let task = |(priority, script): (usize, &ScriptedUnit)| UnitSpec {
        only_input: false,
        rounds: DEFAULT_SPEC.rounds,
        block: 0,
        priority,
        cost: script.expected,
        spans_run: false,
    };
    script.iter().enumerate().map(task).collect()
}

/// Plays a script; `case_statuses` returns how far the units have come after this many rounds each.
fn play(
    spec: ScheduleSpec,
    script: &[ScriptedUnit],
    case_statuses: impl Fn(&[u32]) -> Vec<CaseStatus>,
) -> PlayedSchedule {
    play_tasks(spec, tasks(script), script, case_statuses)
}

fn play_tasks(
    spec: ScheduleSpec,
    tasks: Vec<UnitSpec>,
    script: &[ScriptedUnit],
    case_statuses: impl Fn(&[u32]) -> Vec<CaseStatus>,
) -> PlayedSchedule {
    play_with_slowness(spec, tasks, script, |_| 1.0, case_statuses)
}

/// Like `play_tasks`, on a machine whose overhead is this many times as long at a time.
fn play_with_slowness(
    spec: ScheduleSpec,
    tasks: Vec<UnitSpec>,
    script: &[ScriptedUnit],
    slowness: impl Fn(f64) -> f64,
    case_statuses: impl Fn(&[u32]) -> Vec<CaseStatus>,
) -> PlayedSchedule {
    let mut schedule = Schedule::new(spec, tasks);
    let mut rounds = vec![0; script.len()];
    let [mut slices, mut overheads] = [(); 2].map(|()| vec![Vec::new(); script.len()]);
    let (mut now, mut omitted, mut announced, mut order) = (0.0, Vec::new(), Vec::new(), Vec::new());
    loop {
        let next = schedule.next_round(now, &mut || case_statuses(&rounds));
        for decision in schedule.take_decisions() {
            match decision {
                Decision::LeaveOut { unit } => omitted.push(unit),
                Decision::Lengthen { increase: by } => announced.push(spec.budget + by),
            }
        }
        let Some(next) = next else { break };
        let ScriptedUnit { later_overhead, first_overhead, .. } = script[next.unit];
        let overhead = slowness(now) * if next.round == 0 { first_overhead } else { later_overhead };
        now += next.slice + overhead;
        overheads[next.unit].push(overhead);
        rounds[next.unit] += 1;
        slices[next.unit].push(next.slice);
        order.push(next.unit);
        schedule.record_round(next, 0.0);
    }
    PlayedSchedule { rounds, slices, order, overheads, end_time: now, omitted, announced, schedule }
}

/// All rounds count, and every interval is narrow.
fn satisfied(rounds: &[u32]) -> Vec<CaseStatus> {
    let status = |&rounds: &u32| CaseStatus { counted_rounds: rounds, half_width: Some(0.01), narrowable: None };
    rounds.iter().map(status).collect()
}

/// All rounds count, and intervals have these half-widths for any number of rounds.
fn with_widths(width: impl Fn(usize) -> f64) -> impl Fn(&[u32]) -> Vec<CaseStatus> {
    move |rounds| {
        let status = |(unit, &counting): (usize, &u32)| {
            let width = Some(width(unit));
            CaseStatus { counted_rounds: counting, half_width: width, narrowable: width }
        };
        rounds.iter().enumerate().map(status).collect()
    }
}

/// A default run as it was measured on two CPUs: many cheap cases, some with set-ups of 30 to 130 ms, a few of up to 2.2 s.
fn default_run() -> Vec<ScriptedUnit> {
    let costs: [(usize, f64); 8] =
        [(260, 4.5), (40, 30.0), (30, 55.0), (20, 120.0), (3, 200.0), (3, 360.0), (2, 500.0), (1, 2200.0)];
    costs.iter().flat_map(|&(units, milliseconds)| vec![uniform_unit(milliseconds); units]).collect()
}

#[test]
fn default_run_completes_all_rounds_in_budget() {
    let run = play(ScheduleSpec { budget: 144e9, ..DEFAULT_SPEC }, &default_run(), satisfied);
    assert!(run.rounds.iter().all(|&rounds| rounds == 8), "{:?}", run.rounds);
    assert!(run.end_time <= 144e9 && run.announced.is_empty(), "{}", run.end_time);
    let slices: Vec<f64> = run.slices.concat();
    assert!(slices.iter().all(|slice| (MIN_SLICE..=MAX_SLICE).contains(slice)));
}

#[test]
fn slices_shrink_before_rounds_are_dropped() {
    // Forty units of 5 ms need 3.2 s with slices of 5 ms, and 4.8 s with slices of 10.
    for (budget, min_mean, max_mean) in [(3.3e9, 5.0, 5.0), (4.7e9, 5.5, 7.0), (5.7e9, 8.0, 9.9)] {
        let run = play(ScheduleSpec { budget, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], satisfied);
        assert_eq!(run.rounds, [8; 40], "{budget}");
        let slices = run.slices.concat();
        let mean = slices.iter().sum::<f64>() / slices.len() as f64 / 1e6;
        assert!((min_mean..=max_mean).contains(&mean), "{budget}: {mean}");
        assert!(run.end_time <= budget);
    }
}

#[test]
fn slow_machine_lengthens_run_after_first_pass() {
    let slow_script: Vec<ScriptedUnit> = default_run()
        .iter()
        .map(|unit| ScriptedUnit {
            later_overhead: 3.0 * unit.later_overhead,
            first_overhead: 3.0 * unit.first_overhead,
            ..*unit
        })
        .collect();
    let run = play(ScheduleSpec { budget: 144e9, ..DEFAULT_SPEC }, &slow_script, satisfied);
    assert!(run.rounds.iter().all(|&rounds| rounds == 8) && run.omitted.is_empty(), "{:?}", run.rounds);
    let last = run.announced.last().copied().unwrap();
    assert!(
        run.announced.len() <= 2 && (run.end_time / last - 1.0).abs() < 0.05,
        "{:?} against {}",
        run.announced,
        run.end_time
    );
}

#[test]
fn growing_costs_lengthen_run_in_few_steps() {
    // Eight rounds of 40 units take 3.2 s at first, and their overhead grows by its first value each half second.
    let script = [uniform_unit(5.0); 40];
    let run = play_with_slowness(
        ScheduleSpec { budget: 4e9, ..DEFAULT_SPEC },
        tasks(&script),
        &script,
        |now| 1.0 + now / 0.5e9,
        satisfied,
    );
    assert_eq!(run.rounds, [8; 40]);
    assert!(run.end_time > 12e9 && (2..=6).contains(&run.announced.len()), "{:?} {}", run.announced, run.end_time);
    assert!(run.announced.windows(2).all(|pair| pair[1] >= 1.5 * pair[0]), "{:?}", run.announced);
}

#[test]
fn capped_budget_drops_lowest_priority() {
    // Eight rounds of 40 units take 3.2 s, and in this run their overhead is four times as long: 8 s.
    let script = [uniform_unit(5.0); 40];
    let play_with_limit = |seconds| {
        let limit = BudgetLimit::ExtendableTo(Duration::from_secs_f64(seconds));
        play_with_slowness(
            ScheduleSpec { budget: 4e9, limit, ..DEFAULT_SPEC },
            tasks(&script),
            &script,
            |_| 4.0,
            satisfied,
        )
    };
    let ample_run = play_with_limit(20.0);
    assert!(ample_run.rounds == [8; 40] && ample_run.omitted.is_empty(), "{:?}", ample_run.rounds);
    assert_eq!(ample_run.announced.len(), 1);
    let capped_run = play_with_limit(6.0);
    assert!((5e9..1.05 * 6e9).contains(&capped_run.end_time), "{}", capped_run.end_time);
    assert!(capped_run.announced.iter().all(|budget| *budget <= 6e9), "{:?}", capped_run.announced);
    assert!((2..30).contains(&capped_run.omitted.len()), "{:?}", capped_run.omitted);
    let first_omitted = *capped_run.omitted.iter().min().unwrap();
    assert!(
        first_omitted >= 10 && capped_run.rounds[..first_omitted].iter().all(|&rounds| rounds == 8),
        "{:?}",
        capped_run.rounds
    );
}

#[test]
fn initial_disturbance_does_not_lengthen_run() {
    // Eight rounds of 200 units take 16 s; the first 20 units take ten times as long, since something else runs.
    let script = [uniform_unit(5.0); 200];
    let busy = |now: f64| if now < 1e9 { 10.0 } else { 1.0 };
    let spec = ScheduleSpec { budget: 20e9, ..DEFAULT_SPEC };
    let run = play_with_slowness(spec, tasks(&script), &script, busy, satisfied);
    assert_eq!(run.rounds, [8; 200]);
    assert!(run.announced.is_empty() && run.end_time <= 20e9, "{:?} {}", run.announced, run.end_time);
    assert_eq!((run.schedule.budget(), run.schedule.announced_growth()), (20e9, None));
}

/// What the rounds of a run teach the next one.
fn measured_costs(run: &PlayedSchedule) -> Vec<ExpectedCost> {
    let time = |nanoseconds: f64| Duration::from_nanos(nanoseconds as u64);
    let cost = |overheads: &Vec<f64>| {
        let (first, later) = (overheads[0], &overheads[1..]);
        ExpectedCost {
            first: time(first),
            later: time(later.iter().sum::<f64>() / later.len() as f64),
            is_measured: true,
        }
    };
    run.overheads.iter().map(cost).collect()
}

#[test]
fn known_costs_predict_run_length() {
    // Three times as slow as was guessed, and twelve times in 100 ms of every second; one of ten first rounds makes files.
    let slow_unit = |(unit, script_unit): (usize, ScriptedUnit)| {
        let first = if unit % 10 == 0 { script_unit.later_overhead + 1e9 } else { script_unit.later_overhead };
        ScriptedUnit { first_overhead: first, ..script_unit }
    };
    let script: Vec<ScriptedUnit> = default_run().into_iter().enumerate().map(slow_unit).collect();
    let busy = |now: f64| if (now / 1e9).fract() < 0.1 { 12.0 } else { 3.0 };
    let minimum = ScheduleSpec { budget: 0.0, ..DEFAULT_SPEC };
    let first = play_with_slowness(minimum, tasks(&script), &script, busy, satisfied);
    let costs = measured_costs(&first);
    let known_script: Vec<ScriptedUnit> =
        script.iter().zip(&costs).map(|(unit, &expected)| ScriptedUnit { expected, ..*unit }).collect();
    let budget: f64 = costs.iter().map(|cost| cost.total_for_rounds(DEFAULT_SPEC.rounds) + 8.0 * MIN_SLICE).sum();
    let second = play_with_slowness(
        ScheduleSpec { budget, seed: 2, ..DEFAULT_SPEC },
        tasks(&known_script),
        &known_script,
        busy,
        satisfied,
    );
    assert!(
        second.announced.is_empty() && (second.end_time / budget - 1.0).abs() < 0.1,
        "{} of {budget}: {:?}",
        second.end_time,
        second.announced
    );
    assert_eq!(second.rounds, vec![8; script.len()]);
    // The medians of the rounds would have been more than a tenth short.
    let median_cost = |overheads: &Vec<f64>| 8.0 * (median(overheads) + MIN_SLICE);
    assert!(first.overheads.iter().map(median_cost).sum::<f64>() < 0.9 * second.end_time);
}

#[test]
fn slow_first_round_does_not_raise_measured_costs() {
    // Another unit than before makes what both find.
    let measured_cost =
        |first, later| ExpectedCost { is_measured: true, ..ExpectedCost { first, ..ExpectedCost::estimated(later) } };
    let [short, long] = [10, 9000].map(Duration::from_millis);
    let (maker, finder) = (measured_cost(long, short), measured_cost(short, short));
    let scripted_unit = |expected, first| ScriptedUnit { expected, later_overhead: 10e6, first_overhead: first };
    let script = [vec![scripted_unit(maker, 10e6), scripted_unit(finder, 9e9)], vec![uniform_unit(10.0); 10]].concat();
    let budget = 9e9 + 12.0 * 8.0 * 15e6;
    let run = play(ScheduleSpec { budget, ..DEFAULT_SPEC }, &script, satisfied);
    assert!(run.announced.is_empty() && run.rounds == [8; 12], "{:?} {:?}", run.announced, run.rounds);
    // Nor is it left out for it, where the budget is kept: only the one that seems to have the files still before it.
    let run = play(ScheduleSpec { budget: 1.01 * budget, ..FIXED_SPEC }, &script, satisfied);
    assert!(run.omitted == [0] && run.rounds[1] >= 8, "{:?} {:?}", run.omitted, run.rounds);
    assert!(run.end_time <= 1.02 * budget, "{}", run.end_time);
}

#[test]
fn fixed_budget_drops_lowest_priority_units() {
    for (budget, script) in [
        (3e9, vec![uniform_unit(4.0); 69]),
        (5e9, default_run()),
        (12e9, [vec![uniform_unit(10.0); 20], vec![uniform_unit(300.0); 8], vec![uniform_unit(5000.0); 2]].concat()),
        (60e9, default_run()),
    ] {
        let run = play(ScheduleSpec { budget, ..FIXED_SPEC }, &script, satisfied);
        assert!(run.end_time <= 1.005 * budget, "{} of {budget}", run.end_time);
        let total_time: f64 = script.iter().map(|unit| 8.0 * (unit.later_overhead + MIN_SLICE)).sum();
        assert_eq!(run.omitted.is_empty(), total_time <= budget);
        for unit in 0..script.len() {
            let is_omitted = run.omitted.contains(&unit);
            assert!(
                if is_omitted { run.rounds[unit] < MIN_INTERVAL_ROUNDS as u32 } else { run.rounds[unit] >= 8 },
                "{unit}: {}",
                run.rounds[unit]
            );
            assert!(!is_omitted || run.rounds[unit] == 0, "expected as it was: no round is lost");
        }
        // Most of the budget is used.
        assert!(run.end_time > 0.7 * budget || run.omitted.is_empty(), "{} of {budget}", run.end_time);
    }
}

#[test]
fn unexpectedly_slow_unit_is_dropped_early() {
    // Of a hundred units one takes 5 s where 0.1 were expected, in the middle of the order.
    let mut script = vec![uniform_unit(5.0); 100];
    script[50] = ScriptedUnit { expected: estimated_cost(100.0), later_overhead: 5e9, first_overhead: 5e9 };
    let run = play(ScheduleSpec { budget: 20e9, ..FIXED_SPEC }, &script, satisfied);
    assert_eq!(run.omitted, [50]);
    assert!(run.total(50) <= 2 && run.end_time <= 20.1e9, "{} {}", run.total(50), run.end_time);
    assert!((0..100).all(|unit| unit == 50 || run.rounds[unit] >= 8));
    // A first round that makes what the others find is no reason.
    script[50] = ScriptedUnit { expected: estimated_cost(100.0), later_overhead: 80e6, first_overhead: 2e9 };
    let run = play(ScheduleSpec { budget: 20e9, ..FIXED_SPEC }, &script, satisfied);
    assert!(run.omitted.is_empty() && run.rounds[50] >= 8);
}

#[test]
fn uniform_slowness_is_detected_early() {
    let slow_unit = ScriptedUnit { expected: estimated_cost(5.0), later_overhead: 25e6, first_overhead: 25e6 };
    let run = play(ScheduleSpec { budget: 8e9, ..FIXED_SPEC }, &[slow_unit; 80], satisfied);
    assert!(run.end_time <= 8.1e9, "{}", run.end_time);
    let completed = run.rounds.iter().filter(|&&rounds| rounds >= 8).count();
    // 8 s hold 33 units of 240 ms; those that are left out have no round, but for a few.
    assert!((26..=33).contains(&completed), "{completed}");
    let lost_rounds: u32 = run.omitted.iter().map(|&unit| run.rounds[unit]).sum();
    assert!(lost_rounds <= 8 && run.omitted.len() == 80 - completed, "{lost_rounds}");
    // The least important ones.
    assert!(run.omitted.iter().all(|&unit| unit >= completed - 1), "{:?}", run.omitted);
}

#[test]
fn retired_unit_keeps_rounds_with_interval() {
    let mut schedule = Schedule::new(FIXED_SPEC, tasks(&[uniform_unit(5.0); 2]));
    let mut now = 0.0;
    let mut rounds = [0; 2];
    while let Some(next) = schedule.next_round(now, &mut || satisfied(&rounds)) {
        // From the sixth pass on the machine is a hundred times as slow.
        now += next.slice + if rounds[next.unit] < 5 { 5e6 } else { 3e9 };
        rounds[next.unit] += 1;
        schedule.record_round(next, 0.0);
    }
    assert!(schedule.take_decisions().is_empty());
    assert!(!schedule.short_units().is_empty() && rounds.iter().all(|&rounds| rounds >= 5), "{rounds:?}");
}

#[test]
fn ample_budget_is_spent_on_equal_passes() {
    let run = play(DEFAULT_SPEC, &[uniform_unit(5.0)], satisfied);
    assert_eq!(run.rounds, [MAX_EXTRA_ROUNDS]);
    // 8.5 s hold 56 passes over ten units of 15 ms.
    let run = play(DEFAULT_SPEC, &[uniform_unit(5.0); 10], satisfied);
    assert!((54..=56).contains(&run.rounds[0]), "{:?}", run.rounds);
    assert!(run.rounds.iter().all(|rounds| *rounds == run.rounds[0]) && run.end_time <= 0.86 * DEFAULT_SPEC.budget);
}

/// A budget for the minimum of forty units, and a tenth more.
const TIGHT_SPEC: ScheduleSpec = ScheduleSpec { budget: 5.6e9, ..DEFAULT_SPEC };

#[test]
fn spare_time_goes_to_narrowable_unit() {
    // Narrow enough from 14 rounds on.
    let narrowing = |rounds: &[u32]| {
        let mut statuses = satisfied(rounds);
        let width = 0.015 * (14.0 / f64::from(rounds[3])).sqrt();
        statuses[3] = CaseStatus { half_width: Some(width), narrowable: Some(width), ..statuses[3] };
        statuses
    };
    let run = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], narrowing);
    assert_eq!(run.rounds[3], 14);
    assert!(run.schedule.announced_growth().is_none() && run.announced.is_empty());
    assert!((0..40).all(|unit| unit == 3 || run.rounds[unit] == 8), "{:?}", run.rounds);
    assert!(run.schedule.wide_units(&narrowing(&run.rounds)).is_empty() && run.end_time < TIGHT_SPEC.budget);
}

#[test]
fn spare_time_is_shared_among_wide_units() {
    // None is ever narrow enough, and a round of every fourth takes six times as long.
    let wide_statuses = |rounds: &[u32]| {
        let status = |&rounds: &u32| {
            let width = 0.5 * (8.0 / f64::from(rounds)).sqrt();
            CaseStatus { counted_rounds: rounds, half_width: Some(width), narrowable: Some(width) }
        };
        rounds.iter().map(status).collect::<Vec<CaseStatus>>()
    };
    let script: Vec<ScriptedUnit> = (0..40).map(|unit| uniform_unit(if unit % 4 == 0 { 80.0 } else { 5.0 })).collect();
    let run = play(ScheduleSpec { budget: 11e9, ..DEFAULT_SPEC }, &script, wide_statuses);
    // 8 rounds of 90 ms are more than the others come to, and these are alike.
    assert!((0..40).step_by(4).all(|unit| run.rounds[unit] == 8), "{:?}", run.rounds);
    let cheap_rounds: Vec<u32> = (0..40).filter(|unit| unit % 4 != 0).map(|unit| run.rounds[unit]).collect();
    let (min_rounds, max_rounds) = (cheap_rounds.iter().min().unwrap(), cheap_rounds.iter().max().unwrap());
    assert!(*min_rounds >= 11 && max_rounds - min_rounds <= 1, "{:?}", run.rounds);
    assert!(run.end_time > 0.99 * 11e9 && run.end_time <= 11e9, "{}", run.end_time);
}

#[test]
fn narrowing_begins_after_fourth_round() {
    let widths = with_widths(|unit| if unit < 4 { 0.5 } else { 0.001 });
    // A fifth more than the minimum takes.
    let spec = ScheduleSpec { budget: 1.2 * 40.0 * 8.0 * (5e6 + MIN_SLICE), ..DEFAULT_SPEC };
    let run = play(spec, &[uniform_unit(5.0); 40], widths);
    let rounds_before = |nth: usize| {
        // Until each of the narrow ones has had this many rounds.
        let mut missing_rounds = vec![nth; 36];
        let end = run.order.iter().position(|&unit| {
            if unit >= 4 {
                missing_rounds[unit - 4] = missing_rounds[unit - 4].saturating_sub(1);
            }
            missing_rounds.iter().all(|&rounds| rounds == 0)
        });
        run.order[..end.unwrap()].iter().filter(|&&unit| unit < 4).count()
    };
    let extra_rounds: Vec<usize> = (4..=8).map(|nth| rounds_before(nth).saturating_sub(4 * nth)).collect();
    let total_extra = run.rounds[..4].iter().sum::<u32>() as usize - 4 * 8;
    assert!(run.rounds[4..].iter().all(|&rounds| rounds == 8), "{:?}", run.rounds);
    // A fifth of them after each pass from the fourth on.
    assert_eq!(extra_rounds[0], 0);
    for (index, extra) in extra_rounds.iter().enumerate() {
        let share = *extra as f64 / total_extra as f64;
        assert!((share - index as f64 / 5.0).abs() < 0.1, "{extra} of {total_extra} before pass {}", index + 4);
    }
    assert!(run.end_time > 0.99 * spec.budget && run.end_time <= spec.budget, "{}", run.end_time);
}

#[test]
fn replacement_rounds_are_capped_per_unit() {
    // One round in six of two units is undisturbed; those of the second take 300 ms, and 8 of them 2.4 s of 20.
    let disturbed = |rounds: &[u32]| {
        let status = |(unit, &rounds): (usize, &u32)| CaseStatus {
            counted_rounds: if unit < 2 { rounds / 6 } else { rounds },
            half_width: Some(0.001),
            narrowable: Some(0.001),
        };
        rounds.iter().enumerate().map(status).collect()
    };
    let script = [vec![uniform_unit(5.0), uniform_unit(300.0)], vec![uniform_unit(40.0); 40]].concat();
    let run = play(ScheduleSpec { budget: 20e9, ..DEFAULT_SPEC }, &script, disturbed);
    assert!(run.rounds[0] >= 48 && run.rounds[1] == 8, "{:?}", run.rounds);
    // Alone it has all the time that there is.
    let run = play(ScheduleSpec { budget: 10e9, ..DEFAULT_SPEC }, &script[1..2], |rounds| {
        vec![CaseStatus { counted_rounds: rounds[0] / 6, half_width: Some(0.001), narrowable: Some(0.001) }]
    });
    assert!(run.end_time > 0.95 * 10e9, "{} {:?}", run.end_time, run.rounds);
}

#[test]
fn four_times_wider_gets_half_the_time() {
    let widths = with_widths(|unit| if unit < 20 { 0.24 } else { 0.06 });
    let run = play(ScheduleSpec { budget: 4.4e9, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], widths);
    let [wide_rounds, narrow_rounds] =
        [0..20, 20..40].map(|units: std::ops::Range<usize>| run.rounds[units].iter().sum::<u32>());
    assert!(run.rounds[..20].iter().all(|&rounds| rounds >= 8), "{:?}", run.rounds);
    assert!((1.8..2.1).contains(&(f64::from(narrow_rounds) / f64::from(wide_rounds))), "{wide_rounds} {narrow_rounds}");
}

#[test]
fn narrowing_slices_are_short() {
    let widths = with_widths(|_| 0.5);
    // The geometric mean of the set-up and a millisecond, but 2 ms at least.
    for (overhead, expected) in [(2.0, 2e6), (9.0, 3e6), (100.0, 10e6)] {
        let min_budget = 40.0 * 8.0 * (overhead * 1e6 + MIN_SLICE);
        let run =
            play(ScheduleSpec { budget: 1.1 * min_budget, ..DEFAULT_SPEC }, &[uniform_unit(overhead); 40], &widths);
        let (minimum, extra_slices): (Vec<f64>, Vec<f64>) =
            run.slices.concat().into_iter().partition(|&slice| slice >= MIN_SLICE);
        let is_expected = |slice: &f64| (slice / expected - 1.0).abs() < 1e-9;
        if expected < MIN_SLICE {
            assert!(minimum.iter().all(|&slice| slice == MIN_SLICE), "{overhead}: {minimum:?}");
            assert!(extra_slices.len() > 40 && extra_slices.iter().all(is_expected), "{overhead}: {extra_slices:?}");
        } else {
            assert!(minimum.iter().filter(|slice| is_expected(slice)).count() > 20, "{overhead}: {minimum:?}");
        }
    }
}

#[test]
fn unnarrowable_unit_gets_no_extra_rounds() {
    // Unit 0 has two modes, and of 2 and 3 more than the target is what differs from run to run: 2 was narrowed as far as that
    // makes sense, and 3 can still be; 1 is narrow enough by its rounds, and with the rest it will be.
    let widths = |rounds: &[u32]| {
        let mut statuses = satisfied(rounds);
        let root = |unit: usize| (8.0 / f64::from(rounds[unit])).sqrt();
        let mut set = |unit: usize, half_width, narrowable| {
            statuses[unit] = CaseStatus { half_width: Some(half_width), narrowable, ..statuses[unit] }
        };
        set(0, 0.5, None);
        set(1, (0.012 * root(1)).hypot(0.0112), Some(0.012 * root(1)));
        set(2, f64::hypot(0.014, 0.03), Some(0.014));
        set(3, (0.018 * root(3)).hypot(0.03), Some(0.018 * root(3)));
        statuses
    };
    let run = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], widths);
    // 0.012 (8 / n)^(1/2) = 0.01, and 0.018 (8 / n)^(1/2) = 0.015, for 0.015 in all.
    assert_eq!(run.rounds[..5], [8, 12, 8, 12, 8]);
    assert_eq!(run.schedule.wide_units(&widths(&run.rounds)), [0, 2, 3]);
}

#[test]
fn disturbed_rounds_are_replaced_before_narrowing() {
    // Three of four rounds of the units 0 to 13 are disturbed; all intervals are wide.
    let disturbed = |divisor: u32, other_width: f64| {
        move |rounds: &[u32]| {
            let status = |(unit, &rounds): (usize, &u32)| match unit {
                0..14 => {
                    CaseStatus { counted_rounds: rounds / divisor, half_width: Some(0.01), narrowable: Some(0.01) }
                }
                _ => {
                    CaseStatus { counted_rounds: rounds, half_width: Some(other_width), narrowable: Some(other_width) }
                }
            };
            rounds.iter().enumerate().map(status).collect::<Vec<CaseStatus>>()
        }
    };
    let run = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], disturbed(4, 0.03));
    assert!(run.rounds[..14].iter().all(|&rounds| rounds >= 12), "{:?}", run.rounds);
    assert!(run.rounds[14..].iter().all(|&rounds| rounds == 8), "{:?}", run.rounds);
    // With one of two they have enough for an interval: they share the time with what is wide, and have all of it where nothing is.
    let run = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], disturbed(2, 0.03));
    // What is twice as wide as it should be gets less of it by the root of two.
    assert!(run.rounds[..14].iter().all(|rounds| (15..=16).contains(rounds)), "{:?}", run.rounds);
    assert!(run.rounds[14..].iter().all(|&rounds| rounds == 11), "{:?}", run.rounds);
    let run = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], disturbed(2, 0.01));
    assert!(run.rounds[..14].iter().all(|&rounds| rounds >= 14), "{:?}", run.rounds);
    assert!(run.rounds[14..].iter().all(|&rounds| rounds == 8), "{:?}", run.rounds);
    // Never an undisturbed round: no further one will be.
    let all_disturbed = |rounds: &[u32]| vec![CaseStatus::default(); rounds.len()];
    assert_eq!(play(TIGHT_SPEC, &[uniform_unit(5.0); 40], all_disturbed).rounds, [8; 40]);
}

#[test]
fn input_gets_minimum_interval_rounds() {
    let script = [uniform_unit(5.0); 3];
    let mut tasks = tasks(&script);
    (tasks[1].only_input, tasks[1].rounds) = (true, MIN_ROUNDS);
    let run = play_tasks(TIGHT_SPEC, tasks, &script, satisfied);
    assert_eq!(run.total(1), MIN_ROUNDS);
    assert!(run.total(0) >= 8 && run.total(2) >= 8);
}

#[test]
fn long_setup_gets_longer_slices() {
    let mut script = vec![uniform_unit(5.0); 20];
    script[7] = uniform_unit(200.0);
    let run = play(ScheduleSpec { budget: 30e9, ..DEFAULT_SPEC }, &script, satisfied);
    let longest_slice = |unit: usize| run.slices[unit].iter().copied().fold(0.0, f64::max);
    assert!(
        (longest_slice(7) - 50e6).abs() < 1e3 && longest_slice(0) == DEFAULT_SLICE,
        "{} {}",
        longest_slice(7),
        longest_slice(0)
    );
}

#[test]
fn blocks_are_contiguous_and_shuffled() {
    let mut tasks = tasks(&[uniform_unit(5.0); 12]);
    tasks.iter_mut().enumerate().for_each(|(unit, task)| task.block = unit as u32 % 3);
    let mut schedule = Schedule::new(ScheduleSpec { rounds: 3, ..DEFAULT_SPEC }, tasks);
    let mut passes = Vec::new();
    for _ in 0..3 {
        let pass = pass(&mut schedule, 12);
        let mut blocks: Vec<usize> = pass.iter().map(|unit| unit % 3).collect();
        blocks.dedup();
        assert_eq!(blocks.len(), 3, "{pass:?}");
        passes.push(pass);
    }
    assert!(passes[0] != passes[1] || passes[1] != passes[2]);
}

/// The next units of a schedule.
fn pass(schedule: &mut Schedule, units: usize) -> Vec<usize> {
    let mut next = || {
        let next = schedule.next_round(0.0, &mut || panic!("the minimum is not done")).unwrap();
        schedule.record_round(next, 0.0);
        next.unit
    };
    (0..units).map(|_| next()).collect()
}

#[test]
fn passes_are_shuffled_differently() {
    let sorted = |units: &[usize]| {
        let mut units = units.to_vec();
        units.sort_unstable();
        units
    };
    let mut schedule = Schedule::new(DEFAULT_SPEC, tasks(&[uniform_unit(5.0); 30]));
    let (first, second) = (pass(&mut schedule, 30), pass(&mut schedule, 30));
    assert_ne!(first, second);
    assert_eq!(sorted(&first), sorted(&second));
    // Where cases may have to be left out, the first passes are in the order of importance.
    let mut schedule = Schedule::new(FIXED_SPEC, tasks(&[uniform_unit(5.0); 30]));
    let orders: Vec<bool> = (0..3).map(|_| pass(&mut schedule, 30) == (0..30).collect::<Vec<usize>>()).collect();
    assert_eq!(orders, [true, true, false]);
}

#[test]
fn retired_unit_is_not_retried() {
    let mut schedule = Schedule::new(DEFAULT_SPEC, tasks(&[uniform_unit(5.0); 2]));
    schedule.retire_unit(0);
    let mut now = 0.0;
    while let Some(next) = schedule.next_round(now, &mut || satisfied(&[0, 8])) {
        assert_eq!(next.unit, 1);
        now += 1e8;
        schedule.record_round(next, 0.0);
    }
    assert!(now > 0.0 && schedule.short_units().is_empty());
}

#[test]
fn run_spanning_unit_is_first_and_last() {
    for limit in [EXTENDABLE, BudgetLimit::Fixed] {
        let script = [uniform_unit(5.0); 40];
        let mut tasks = tasks(&script);
        tasks[39].spans_run = true;
        let mut schedule = Schedule::new(ScheduleSpec { limit, ..DEFAULT_SPEC }, tasks);
        let (mut order, mut now) = (Vec::new(), 0.0);
        // Others are never narrow enough, so that they are mended while time lasts.
        let statuses = || vec![CaseStatus { counted_rounds: 8, half_width: Some(0.04), narrowable: Some(0.04) }; 40];
        while let Some(next) = schedule.next_round(now, &mut || statuses()) {
            now += next.slice + 5e6;
            order.push(next.unit);
            schedule.record_round(next, 0.0);
        }
        let positions: Vec<usize> = (0..order.len()).filter(|&index| order[index] == 39).collect();
        let last = order.len() - 7;
        assert_eq!(positions, [vec![0], (last..order.len()).collect()].concat(), "{limit:?}");
        assert!((0.95 * DEFAULT_SPEC.budget..=DEFAULT_SPEC.budget).contains(&now), "{now}");
    }
}

/// Plays a script in which every round goes on beyond its timing for as long as this share of what it may; by how much in all.
fn play_with_extension(spec: ScheduleSpec, script: &[ScriptedUnit], share: f64) -> (Vec<u32>, f64, f64, Vec<f64>) {
    let mut schedule = Schedule::new(spec, tasks(script));
    let mut rounds = vec![0; script.len()];
    let (mut now, mut extensions) = (0.0, Vec::new());
    while let Some(next) = schedule.next_round(now, &mut || satisfied(&rounds)) {
        let extension = share * next.max_extension;
        now += next.slice + script[next.unit].later_overhead + extension;
        rounds[next.unit] += 1;
        extensions.push(extension);
        schedule.record_round(next, extension);
    }
    let overheads =
        script.iter().enumerate().map(|(unit, _)| schedule.expected_overhead(&schedule.units[unit])).collect();
    (rounds, now, extensions.iter().sum(), overheads)
}

#[test]
fn extensions_use_only_spare_time() {
    // Forty units of 5 ms need 3.2 s.
    for (budget, share) in [(3.3e9, 1.0), (6e9, 1.0), (6e9, 0.1)] {
        let (rounds, now, extension_time, overheads) =
            play_with_extension(ScheduleSpec { budget, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], share);
        assert!(rounds.iter().all(|&rounds| rounds >= 8), "{budget}: {rounds:?}");
        assert!(now <= budget + 1.0, "{budget}: {now}");
        assert!(extension_time > 0.0, "{budget}");
        // It is no cost of the unit.
        assert!(overheads.iter().all(|overhead| (overhead - 5e6).abs() < 1e-3), "{overheads:?}");
    }
    // Where nothing is left, none may.
    let (rounds, now, extension_time, _) =
        play_with_extension(ScheduleSpec { budget: 3e9, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], 1.0);
    assert_eq!((rounds, extension_time), (vec![8; 40], 0.0));
    assert!(now <= 3.2e9 + 1.0, "{now}");
}

#[test]
fn extension_is_capped() {
    let spec = ScheduleSpec { budget: 1000e9, ..DEFAULT_SPEC };
    let mut schedule = Schedule::new(spec, tasks(&[uniform_unit(5.0); 4]));
    let next = schedule.next_round(0.0, &mut || panic!("no unit has its minimum")).unwrap();
    assert_eq!(next.max_extension, MAX_EXTENSION);
}

#[test]
fn single_slow_case_uses_whole_budget() {
    // Eight rounds were expected to take 0.8 s each; they take 1.5.
    let slow_unit = ScriptedUnit { expected: estimated_cost(800.0), later_overhead: 1.5e9, first_overhead: 1.5e9 };
    let run = play(FIXED_SPEC, &[slow_unit], satisfied);
    assert!((5..8).contains(&run.rounds[0]) && run.end_time <= 10e9, "{:?} {}", run.rounds, run.end_time);
    assert!(run.omitted.is_empty(), "{:?}", run.omitted);
    assert_eq!(run.schedule.short_units(), [0]);
    // With two, the one without room is left out whole.
    let run = play(
        FIXED_SPEC,
        &[
            uniform_unit(20.0),
            ScriptedUnit { expected: estimated_cost(800.0), later_overhead: 4e9, first_overhead: 4e9 },
        ],
        satisfied,
    );
    assert_eq!(run.omitted, [1]);
}

#[test]
fn large_machine_ends_within_the_limit_of_a_default_run() {
    // As on 256 CPUs: a matrix of 276 pairs, and curves of many tasks, which turn out to take up to half as long again as expected.
    let matrix = vec![uniform_unit(5.0); 276];
    let curves = vec![uniform_unit(75.0); 150];
    let others = vec![uniform_unit(12.0); 300];
    let script: Vec<ScriptedUnit> = [matrix, others, curves].concat();
    let mut tasks = tasks(&script);
    tasks[..276].iter_mut().for_each(|task| task.rounds = MIN_ROUNDS);
    let limit = Duration::from_secs(240);
    let spec = ScheduleSpec { budget: 160e9, limit: BudgetLimit::ExtendableTo(limit), ..DEFAULT_SPEC };
    for slowness in [1.0, 1.5] {
        let run = play_with_slowness(spec, tasks.clone(), &script, |_| slowness, satisfied);
        assert!(run.end_time <= 1.02 * limit.as_nanos() as f64, "{slowness}: {}", run.end_time);
        assert!(run.omitted.is_empty(), "{slowness}: {:?}", run.omitted);
        let few_rounds = |(&rounds, task): (&u32, &UnitSpec)| rounds < task.rounds;
        assert!(!run.rounds.iter().zip(&tasks).any(few_rounds), "{slowness}: {:?}", run.rounds);
    }
    // Three times as long: the least important are left out.
    let run = play_with_slowness(spec, tasks, &script, |_| 3.0, satisfied);
    assert!(run.end_time <= 1.02 * limit.as_nanos() as f64 && !run.omitted.is_empty(), "{}", run.end_time);
}
