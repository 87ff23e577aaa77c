//! The schedule over scripted time: units with costs like real ones.

use std::time::Duration;

use super::*;

const DEFAULT_SPEC: ScheduleSpec =
    ScheduleSpec { budget: 10e9, limit: BudgetLimit::Extendable, rounds: 8, target: 0.02, seed: 1 };
const FIXED_SPEC: ScheduleSpec = ScheduleSpec { limit: BudgetLimit::Fixed, ..DEFAULT_SPEC };

/// What a unit of a script takes beside its timing, in nanoseconds.
#[derive(Clone, Copy)]
struct ScriptedUnit {
    expected: ExpectedCost,
    later_overhead: f64,
    /// Like `later_overhead`, in its first round, which makes what the others find.
    first_overhead: f64,
}

fn guessed(milliseconds: f64) -> ExpectedCost {
    ExpectedCost::estimated(Duration::from_secs_f64(milliseconds / 1e3))
}

fn uniform_unit(milliseconds: f64) -> ScriptedUnit {
    let beside = milliseconds * 1e6;
    ScriptedUnit { expected: guessed(milliseconds), later_overhead: beside, first_overhead: beside }
}

/// What a run of a script came to.
struct PlayedSchedule {
    rounds: Vec<u32>,
    slices: Vec<Vec<f64>>,
    /// The unit of each round, in their order.
    order: Vec<usize>,
    /// What each round took beside its timing.
    overheads: Vec<Vec<f64>>,
    now: f64,
    left_out: Vec<usize>,
    announced: Vec<f64>,
    schedule: Schedule,
}

impl PlayedSchedule {
    fn total(&self, unit: usize) -> u32 {
        self.rounds[unit]
    }
}

fn tasks(script: &[ScriptedUnit]) -> Vec<UnitSpec> {
    let task = |(place, script): (usize, &ScriptedUnit)| UnitSpec {
        only_input: false,
        block: 0,
        priority: place,
        cost: script.expected,
        spans_run: false,
    };
    script.iter().enumerate().map(task).collect()
}

/// Plays a script; `judge` says how far the units have come after this many rounds each.
fn play(wanted: ScheduleSpec, script: &[ScriptedUnit], judge: impl Fn(&[u32]) -> Vec<CaseStatus>) -> PlayedSchedule {
    play_tasks(wanted, tasks(script), script, judge)
}

fn play_tasks(
    wanted: ScheduleSpec,
    tasks: Vec<UnitSpec>,
    script: &[ScriptedUnit],
    judge: impl Fn(&[u32]) -> Vec<CaseStatus>,
) -> PlayedSchedule {
    play_with_slowness(wanted, tasks, script, |_| 1.0, judge)
}

/// Like `play_tasks`, on a machine where what is done beside the timing takes this many times as long at a time.
fn play_with_slowness(
    wanted: ScheduleSpec,
    tasks: Vec<UnitSpec>,
    script: &[ScriptedUnit],
    slowness: impl Fn(f64) -> f64,
    judge: impl Fn(&[u32]) -> Vec<CaseStatus>,
) -> PlayedSchedule {
    let mut schedule = Schedule::new(wanted, tasks);
    let mut rounds = vec![0; script.len()];
    let [mut slices, mut took] = [(); 2].map(|()| vec![Vec::new(); script.len()]);
    let (mut now, mut left_out, mut said, mut order) = (0.0, Vec::new(), Vec::new(), Vec::new());
    loop {
        let next = schedule.next_round(now, &mut || judge(&rounds));
        for decision in schedule.take_decisions() {
            match decision {
                Decision::LeaveOut { unit } => left_out.push(unit),
                Decision::Lengthen { by } => said.push(wanted.budget + by),
            }
        }
        let Some(next) = next else { break };
        let ScriptedUnit { later_overhead: beside, first_overhead: first, .. } = script[next.unit];
        let beside = slowness(now) * if next.round == 0 { first } else { beside };
        now += next.slice + beside;
        took[next.unit].push(beside);
        rounds[next.unit] += 1;
        slices[next.unit].push(next.slice);
        order.push(next.unit);
        schedule.record_round(next, 0.0);
    }
    PlayedSchedule { rounds, slices, order, overheads: took, now, left_out, announced: said, schedule }
}

/// All rounds count, and every interval is narrow.
fn satisfied(rounds: &[u32]) -> Vec<CaseStatus> {
    let standing = |&rounds: &u32| CaseStatus { counted_rounds: rounds, half_width: Some(0.01), narrowable: None };
    rounds.iter().map(standing).collect()
}

/// All rounds count, and intervals have these half-widths, whatever the rounds.
fn with_widths(width: impl Fn(usize) -> f64) -> impl Fn(&[u32]) -> Vec<CaseStatus> {
    move |rounds| {
        let standing = |(unit, &counting): (usize, &u32)| {
            let width = Some(width(unit));
            CaseStatus { counted_rounds: counting, half_width: width, narrowable: width }
        };
        rounds.iter().enumerate().map(standing).collect()
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
    let played = play(ScheduleSpec { budget: 144e9, ..DEFAULT_SPEC }, &default_run(), satisfied);
    assert!(played.rounds.iter().all(|&rounds| rounds == 8), "{:?}", played.rounds);
    assert!(played.now <= 144e9 && played.announced.is_empty(), "{}", played.now);
    let slices: Vec<f64> = played.slices.concat();
    assert!(slices.iter().all(|slice| (MIN_SLICE..=MAX_SLICE).contains(slice)));
}

#[test]
fn slices_shrink_before_rounds_are_dropped() {
    // Forty units of 5 ms need 3.2 s with slices of 5 ms, and 4.8 s with slices of 10.
    for (budget, least, most) in [(3.3e9, 5.0, 5.0), (4.7e9, 5.5, 7.0), (5.7e9, 8.0, 9.9)] {
        let played = play(ScheduleSpec { budget, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], satisfied);
        assert_eq!(played.rounds, [8; 40], "{budget}");
        let slices = played.slices.concat();
        let mean = slices.iter().sum::<f64>() / slices.len() as f64 / 1e6;
        assert!((least..=most).contains(&mean), "{budget}: {mean}");
        assert!(played.now <= budget);
    }
}

#[test]
fn slow_machine_lengthens_run_after_first_pass() {
    let slow: Vec<ScriptedUnit> = default_run()
        .iter()
        .map(|one| ScriptedUnit {
            later_overhead: 3.0 * one.later_overhead,
            first_overhead: 3.0 * one.first_overhead,
            ..*one
        })
        .collect();
    let played = play(ScheduleSpec { budget: 144e9, ..DEFAULT_SPEC }, &slow, satisfied);
    assert!(played.rounds.iter().all(|&rounds| rounds == 8) && played.left_out.is_empty(), "{:?}", played.rounds);
    let last = played.announced.last().copied().unwrap();
    assert!(
        played.announced.len() <= 2 && (played.now / last - 1.0).abs() < 0.05,
        "{:?} against {}",
        played.announced,
        played.now
    );
}

#[test]
fn growing_costs_lengthen_run_in_few_steps() {
    // Eight rounds of 40 units take 3.2 s at first, and what is beside their timing takes as long again after each half second.
    let script = [uniform_unit(5.0); 40];
    let played = play_with_slowness(
        ScheduleSpec { budget: 4e9, ..DEFAULT_SPEC },
        tasks(&script),
        &script,
        |now| 1.0 + now / 0.5e9,
        satisfied,
    );
    assert_eq!(played.rounds, [8; 40]);
    assert!(played.now > 12e9 && (2..=6).contains(&played.announced.len()), "{:?} {}", played.announced, played.now);
    assert!(played.announced.windows(2).all(|pair| pair[1] >= 1.5 * pair[0]), "{:?}", played.announced);
}

#[test]
fn capped_budget_drops_lowest_priority() {
    // Eight rounds of 40 units take 3.2 s, and in this run four times as long beside their timing: 8 s.
    let script = [uniform_unit(5.0); 40];
    let play = |most| {
        let limit = BudgetLimit::ExtendableTo(Duration::from_secs_f64(most));
        play_with_slowness(
            ScheduleSpec { budget: 4e9, limit, ..DEFAULT_SPEC },
            tasks(&script),
            &script,
            |_| 4.0,
            satisfied,
        )
    };
    let within = play(20.0);
    assert!(within.rounds == [8; 40] && within.left_out.is_empty(), "{:?}", within.rounds);
    assert_eq!(within.announced.len(), 1);
    let beyond = play(6.0);
    assert!((5e9..1.05 * 6e9).contains(&beyond.now), "{}", beyond.now);
    assert!(beyond.announced.iter().all(|said| *said <= 6e9), "{:?}", beyond.announced);
    assert!((2..30).contains(&beyond.left_out.len()), "{:?}", beyond.left_out);
    let first_out = *beyond.left_out.iter().min().unwrap();
    assert!(first_out >= 10 && beyond.rounds[..first_out].iter().all(|&rounds| rounds == 8), "{:?}", beyond.rounds);
}

#[test]
fn initial_disturbance_does_not_lengthen_run() {
    // Eight rounds of 200 units take 16 s; the first 20 units take ten times as long, since something else runs.
    let script = [uniform_unit(5.0); 200];
    let busy = |now: f64| if now < 1e9 { 10.0 } else { 1.0 };
    let wanted = ScheduleSpec { budget: 20e9, ..DEFAULT_SPEC };
    let played = play_with_slowness(wanted, tasks(&script), &script, busy, satisfied);
    assert_eq!(played.rounds, [8; 200]);
    assert!(played.announced.is_empty() && played.now <= 20e9, "{:?} {}", played.announced, played.now);
    assert_eq!((played.schedule.budget(), played.schedule.announced_growth()), (20e9, None));
}

/// What the rounds of a run teach the next one.
fn measured_costs(played: &PlayedSchedule) -> Vec<ExpectedCost> {
    let time = |nanoseconds: f64| Duration::from_nanos(nanoseconds as u64);
    let cost = |beside: &Vec<f64>| {
        let (first, later) = (beside[0], &beside[1..]);
        ExpectedCost {
            first: time(first),
            later: time(later.iter().sum::<f64>() / later.len() as f64),
            is_measured: true,
        }
    };
    played.overheads.iter().map(cost).collect()
}

#[test]
fn known_costs_predict_run_length() {
    // Three times as slow as was guessed, and twelve times in 100 ms of every second; one of ten first rounds makes files.
    let slow = |(unit, one): (usize, ScriptedUnit)| {
        let first = if unit % 10 == 0 { one.later_overhead + 1e9 } else { one.later_overhead };
        ScriptedUnit { first_overhead: first, ..one }
    };
    let script: Vec<ScriptedUnit> = default_run().into_iter().enumerate().map(slow).collect();
    let busy = |now: f64| if (now / 1e9).fract() < 0.1 { 12.0 } else { 3.0 };
    let minimum = ScheduleSpec { budget: 0.0, ..DEFAULT_SPEC };
    let first = play_with_slowness(minimum, tasks(&script), &script, busy, satisfied);
    let costs = measured_costs(&first);
    let known: Vec<ScriptedUnit> =
        script.iter().zip(&costs).map(|(one, &expected)| ScriptedUnit { expected, ..*one }).collect();
    let budget: f64 = costs.iter().map(|cost| cost.total_for_rounds(DEFAULT_SPEC.rounds) + 8.0 * MIN_SLICE).sum();
    let second =
        play_with_slowness(ScheduleSpec { budget, seed: 2, ..DEFAULT_SPEC }, tasks(&known), &known, busy, satisfied);
    assert!(
        second.announced.is_empty() && (second.now / budget - 1.0).abs() < 0.1,
        "{} of {budget}: {:?}",
        second.now,
        second.announced
    );
    assert_eq!(second.rounds, vec![8; script.len()]);
    // The medians of the rounds would have been more than a tenth short.
    let middle = |beside: &Vec<f64>| 8.0 * (median(beside) + MIN_SLICE);
    assert!(first.overheads.iter().map(middle).sum::<f64>() < 0.9 * second.now);
}

#[test]
fn slow_first_round_does_not_raise_measured_costs() {
    // Another unit than before makes what both find.
    let known =
        |first, later| ExpectedCost { is_measured: true, ..ExpectedCost { first, ..ExpectedCost::estimated(later) } };
    let [short, long] = [10, 9000].map(Duration::from_millis);
    let (maker, finder) = (known(long, short), known(short, short));
    let made = |expected, first| ScriptedUnit { expected, later_overhead: 10e6, first_overhead: first };
    let script = [vec![made(maker, 10e6), made(finder, 9e9)], vec![uniform_unit(10.0); 10]].concat();
    let budget = 9e9 + 12.0 * 8.0 * 15e6;
    let played = play(ScheduleSpec { budget, ..DEFAULT_SPEC }, &script, satisfied);
    assert!(played.announced.is_empty() && played.rounds == [8; 12], "{:?} {:?}", played.announced, played.rounds);
    // Nor is it left out for it, where the budget is kept: only the one that seems to have the files still before it.
    let played = play(ScheduleSpec { budget: 1.01 * budget, ..FIXED_SPEC }, &script, satisfied);
    assert!(played.left_out == [0] && played.rounds[1] >= 8, "{:?} {:?}", played.left_out, played.rounds);
    assert!(played.now <= 1.02 * budget, "{}", played.now);
}

#[test]
fn fixed_budget_drops_lowest_priority_units() {
    for (budget, script) in [
        (3e9, vec![uniform_unit(4.0); 69]),
        (5e9, default_run()),
        (12e9, [vec![uniform_unit(10.0); 20], vec![uniform_unit(300.0); 8], vec![uniform_unit(5000.0); 2]].concat()),
        (60e9, default_run()),
    ] {
        let played = play(ScheduleSpec { budget, ..FIXED_SPEC }, &script, satisfied);
        assert!(played.now <= 1.005 * budget, "{} of {budget}", played.now);
        let all: f64 = script.iter().map(|one| 8.0 * (one.later_overhead + MIN_SLICE)).sum();
        assert_eq!(played.left_out.is_empty(), all <= budget);
        for unit in 0..script.len() {
            let is_out = played.left_out.contains(&unit);
            assert!(
                if is_out { played.rounds[unit] < MIN_INTERVAL_ROUNDS as u32 } else { played.rounds[unit] >= 8 },
                "{unit}: {}",
                played.rounds[unit]
            );
            assert!(!is_out || played.rounds[unit] == 0, "expected as it was: no round is lost");
        }
        // Most of the budget is used.
        assert!(played.now > 0.7 * budget || played.left_out.is_empty(), "{} of {budget}", played.now);
    }
}

#[test]
fn unexpectedly_slow_unit_is_dropped_early() {
    // Of a hundred units one takes 5 s where 0.1 were expected, in the middle of the order.
    let mut script = vec![uniform_unit(5.0); 100];
    script[50] = ScriptedUnit { expected: guessed(100.0), later_overhead: 5e9, first_overhead: 5e9 };
    let played = play(ScheduleSpec { budget: 20e9, ..FIXED_SPEC }, &script, satisfied);
    assert_eq!(played.left_out, [50]);
    assert!(played.total(50) <= 2 && played.now <= 20.1e9, "{} {}", played.total(50), played.now);
    assert!((0..100).all(|unit| unit == 50 || played.rounds[unit] >= 8));
    // A first round that makes what the others find is no reason.
    script[50] = ScriptedUnit { expected: guessed(100.0), later_overhead: 80e6, first_overhead: 2e9 };
    let played = play(ScheduleSpec { budget: 20e9, ..FIXED_SPEC }, &script, satisfied);
    assert!(played.left_out.is_empty() && played.rounds[50] >= 8);
}

#[test]
fn uniform_slowness_is_detected_early() {
    let slow = ScriptedUnit { expected: guessed(5.0), later_overhead: 25e6, first_overhead: 25e6 };
    let played = play(ScheduleSpec { budget: 8e9, ..FIXED_SPEC }, &[slow; 80], satisfied);
    assert!(played.now <= 8.1e9, "{}", played.now);
    let whole = played.rounds.iter().filter(|&&rounds| rounds >= 8).count();
    // 8 s hold 33 units of 240 ms; those that are left out have no round, but for a few.
    assert!((26..=33).contains(&whole), "{whole}");
    let lost: u32 = played.left_out.iter().map(|&unit| played.rounds[unit]).sum();
    assert!(lost <= 8 && played.left_out.len() == 80 - whole, "{lost}");
    // The least important ones.
    assert!(played.left_out.iter().all(|&unit| unit >= whole - 1), "{:?}", played.left_out);
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
    let played = play(DEFAULT_SPEC, &[uniform_unit(5.0)], satisfied);
    assert_eq!(played.rounds, [MAX_EXTRA_ROUNDS]);
    // 8.5 s hold 56 passes over ten units of 15 ms.
    let played = play(DEFAULT_SPEC, &[uniform_unit(5.0); 10], satisfied);
    assert!((54..=56).contains(&played.rounds[0]), "{:?}", played.rounds);
    assert!(played.rounds.iter().all(|rounds| *rounds == played.rounds[0]) && played.now <= 0.86 * DEFAULT_SPEC.budget);
}

/// A budget for the minimum of forty units, and a tenth more.
const TIGHT_SPEC: ScheduleSpec = ScheduleSpec { budget: 5.6e9, ..DEFAULT_SPEC };

#[test]
fn spare_time_goes_to_narrowable_unit() {
    // Narrow enough from 14 rounds on.
    let narrowing = |rounds: &[u32]| {
        let mut standings = satisfied(rounds);
        let width = 0.015 * (14.0 / f64::from(rounds[3])).sqrt();
        standings[3] = CaseStatus { half_width: Some(width), narrowable: Some(width), ..standings[3] };
        standings
    };
    let played = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], narrowing);
    assert_eq!(played.rounds[3], 14);
    assert!(played.schedule.announced_growth().is_none() && played.announced.is_empty());
    assert!((0..40).all(|unit| unit == 3 || played.rounds[unit] == 8), "{:?}", played.rounds);
    assert!(played.schedule.wide_units(&narrowing(&played.rounds)).is_empty() && played.now < TIGHT_SPEC.budget);
}

#[test]
fn spare_time_is_shared_among_wide_units() {
    // None is ever narrow enough, and a round of every fourth takes six times as long.
    let wide = |rounds: &[u32]| {
        let standing = |&rounds: &u32| {
            let width = 0.5 * (8.0 / f64::from(rounds)).sqrt();
            CaseStatus { counted_rounds: rounds, half_width: Some(width), narrowable: Some(width) }
        };
        rounds.iter().map(standing).collect::<Vec<CaseStatus>>()
    };
    let script: Vec<ScriptedUnit> = (0..40).map(|unit| uniform_unit(if unit % 4 == 0 { 80.0 } else { 5.0 })).collect();
    let played = play(ScheduleSpec { budget: 11e9, ..DEFAULT_SPEC }, &script, wide);
    // 8 rounds of 90 ms are more than the others come to, and these are alike.
    assert!((0..40).step_by(4).all(|unit| played.rounds[unit] == 8), "{:?}", played.rounds);
    let cheap: Vec<u32> = (0..40).filter(|unit| unit % 4 != 0).map(|unit| played.rounds[unit]).collect();
    let (least, most) = (cheap.iter().min().unwrap(), cheap.iter().max().unwrap());
    assert!(*least >= 11 && most - least <= 1, "{:?}", played.rounds);
    assert!(played.now > 0.99 * 11e9 && played.now <= 11e9, "{}", played.now);
}

#[test]
fn narrowing_begins_after_fourth_round() {
    let wide = with_widths(|unit| if unit < 4 { 0.5 } else { 0.001 });
    // A fifth more than the minimum takes.
    let wanted = ScheduleSpec { budget: 1.2 * 40.0 * 8.0 * (5e6 + MIN_SLICE), ..DEFAULT_SPEC };
    let played = play(wanted, &[uniform_unit(5.0); 40], wide);
    let rounds_before = |nth: usize| {
        // Until each of the narrow ones has had this many rounds.
        let mut left = vec![nth; 36];
        let end = played.order.iter().position(|&unit| {
            if unit >= 4 {
                left[unit - 4] = left[unit - 4].saturating_sub(1);
            }
            left.iter().all(|&left| left == 0)
        });
        played.order[..end.unwrap()].iter().filter(|&&unit| unit < 4).count()
    };
    let further: Vec<usize> = (4..=8).map(|nth| rounds_before(nth).saturating_sub(4 * nth)).collect();
    let all = played.rounds[..4].iter().sum::<u32>() as usize - 4 * 8;
    assert!(played.rounds[4..].iter().all(|&rounds| rounds == 8), "{:?}", played.rounds);
    // A fifth of them after each pass from the fourth on.
    assert_eq!(further[0], 0);
    for (part, further) in further.iter().enumerate() {
        let share = *further as f64 / all as f64;
        assert!((share - part as f64 / 5.0).abs() < 0.1, "{further} of {all} before pass {}", part + 4);
    }
    assert!(played.now > 0.99 * wanted.budget && played.now <= wanted.budget, "{}", played.now);
}

#[test]
fn replacement_rounds_are_capped_per_unit() {
    // One round in six of two units is undisturbed; those of the second take 300 ms, and 8 of them 2.4 s of 20.
    let disturbed = |rounds: &[u32]| {
        let standing = |(unit, &rounds): (usize, &u32)| CaseStatus {
            counted_rounds: if unit < 2 { rounds / 6 } else { rounds },
            half_width: Some(0.001),
            narrowable: Some(0.001),
        };
        rounds.iter().enumerate().map(standing).collect()
    };
    let script = [vec![uniform_unit(5.0), uniform_unit(300.0)], vec![uniform_unit(40.0); 40]].concat();
    let played = play(ScheduleSpec { budget: 20e9, ..DEFAULT_SPEC }, &script, disturbed);
    assert!(played.rounds[0] >= 48 && played.rounds[1] == 8, "{:?}", played.rounds);
    // Alone it has all the time that there is.
    let played = play(ScheduleSpec { budget: 10e9, ..DEFAULT_SPEC }, &script[1..2], |rounds| {
        vec![CaseStatus { counted_rounds: rounds[0] / 6, half_width: Some(0.001), narrowable: Some(0.001) }]
    });
    assert!(played.now > 0.95 * 10e9, "{} {:?}", played.now, played.rounds);
}

#[test]
fn four_times_wider_gets_half_the_time() {
    let wide = with_widths(|unit| if unit < 20 { 0.24 } else { 0.06 });
    let played = play(ScheduleSpec { budget: 4.4e9, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], wide);
    let [much, less] = [0..20, 20..40].map(|units: std::ops::Range<usize>| played.rounds[units].iter().sum::<u32>());
    assert!(played.rounds[..20].iter().all(|&rounds| rounds >= 8), "{:?}", played.rounds);
    assert!((1.8..2.1).contains(&(f64::from(less) / f64::from(much))), "{much} {less}");
}

#[test]
fn narrowing_slices_are_short() {
    let wide = with_widths(|_| 0.5);
    // The geometric mean of the set-up and a millisecond, but 2 ms at least.
    for (beside, expected) in [(2.0, 2e6), (9.0, 3e6), (100.0, 10e6)] {
        let least = 40.0 * 8.0 * (beside * 1e6 + MIN_SLICE);
        let played = play(ScheduleSpec { budget: 1.1 * least, ..DEFAULT_SPEC }, &[uniform_unit(beside); 40], &wide);
        let (minimum, further): (Vec<f64>, Vec<f64>) =
            played.slices.concat().into_iter().partition(|&slice| slice >= MIN_SLICE);
        let is_expected = |slice: &f64| (slice / expected - 1.0).abs() < 1e-9;
        if expected < MIN_SLICE {
            assert!(minimum.iter().all(|&slice| slice == MIN_SLICE), "{beside}: {minimum:?}");
            assert!(further.len() > 40 && further.iter().all(is_expected), "{beside}: {further:?}");
        } else {
            assert!(minimum.iter().filter(|slice| is_expected(slice)).count() > 20, "{beside}: {minimum:?}");
        }
    }
}

#[test]
fn unnarrowable_unit_gets_no_extra_rounds() {
    // Unit 0 has two modes, and of 2 and 3 more than the target is what differs from run to run: 2 was narrowed as far as that
    // makes sense, and 3 can still be; 1 is narrow enough by its rounds, and with the rest it will be.
    let widths = |rounds: &[u32]| {
        let mut standings = satisfied(rounds);
        let root = |unit: usize| (8.0 / f64::from(rounds[unit])).sqrt();
        let mut set = |unit: usize, whole, narrowable| {
            standings[unit] = CaseStatus { half_width: Some(whole), narrowable, ..standings[unit] }
        };
        set(0, 0.5, None);
        set(1, (0.012 * root(1)).hypot(0.0112), Some(0.012 * root(1)));
        set(2, f64::hypot(0.014, 0.03), Some(0.014));
        set(3, (0.018 * root(3)).hypot(0.03), Some(0.018 * root(3)));
        standings
    };
    let played = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], widths);
    // 0.012 (8 / n)^(1/2) = 0.01, and 0.018 (8 / n)^(1/2) = 0.015, for 0.015 in all.
    assert_eq!(played.rounds[..5], [8, 12, 8, 12, 8]);
    assert_eq!(played.schedule.wide_units(&widths(&played.rounds)), [0, 2, 3]);
}

#[test]
fn disturbed_rounds_are_replaced_before_narrowing() {
    // Three of four rounds of the units 0 to 13 are disturbed; all intervals are wide.
    let disturbed = |part: u32, others: f64| {
        move |rounds: &[u32]| {
            let standing = |(unit, &rounds): (usize, &u32)| match unit {
                0..14 => CaseStatus { counted_rounds: rounds / part, half_width: Some(0.01), narrowable: Some(0.01) },
                _ => CaseStatus { counted_rounds: rounds, half_width: Some(others), narrowable: Some(others) },
            };
            rounds.iter().enumerate().map(standing).collect::<Vec<CaseStatus>>()
        }
    };
    let played = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], disturbed(4, 0.03));
    assert!(played.rounds[..14].iter().all(|&rounds| rounds >= 12), "{:?}", played.rounds);
    assert!(played.rounds[14..].iter().all(|&rounds| rounds == 8), "{:?}", played.rounds);
    // With one of two they have enough for an interval: they share the time with what is wide, and have all of it where nothing is.
    let played = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], disturbed(2, 0.03));
    // What is twice as wide as it should be gets less of it by the root of two.
    assert!(played.rounds[..14].iter().all(|rounds| (15..=16).contains(rounds)), "{:?}", played.rounds);
    assert!(played.rounds[14..].iter().all(|&rounds| rounds == 11), "{:?}", played.rounds);
    let played = play(TIGHT_SPEC, &[uniform_unit(5.0); 40], disturbed(2, 0.01));
    assert!(played.rounds[..14].iter().all(|&rounds| rounds >= 14), "{:?}", played.rounds);
    assert!(played.rounds[14..].iter().all(|&rounds| rounds == 8), "{:?}", played.rounds);
    // Never an undisturbed round: no further one will be.
    let never = |rounds: &[u32]| vec![CaseStatus::default(); rounds.len()];
    assert_eq!(play(TIGHT_SPEC, &[uniform_unit(5.0); 40], never).rounds, [8; 40]);
}

#[test]
fn input_gets_minimum_interval_rounds() {
    let script = [uniform_unit(5.0); 3];
    let mut tasks = tasks(&script);
    tasks[1].only_input = true;
    let played = play_tasks(TIGHT_SPEC, tasks, &script, satisfied);
    assert_eq!(played.total(1), INPUT_ROUNDS);
    assert!(played.total(0) >= 8 && played.total(2) >= 8);
}

#[test]
fn long_setup_gets_longer_slices() {
    let mut script = vec![uniform_unit(5.0); 20];
    script[7] = uniform_unit(200.0);
    let played = play(ScheduleSpec { budget: 30e9, ..DEFAULT_SPEC }, &script, satisfied);
    let longest = |unit: usize| played.slices[unit].iter().copied().fold(0.0, f64::max);
    assert!((longest(7) - 50e6).abs() < 1e3 && longest(0) == DEFAULT_SLICE, "{} {}", longest(7), longest(0));
}

#[test]
fn blocks_are_contiguous_and_shuffled() {
    let mut tasks = tasks(&[uniform_unit(5.0); 12]);
    tasks.iter_mut().enumerate().for_each(|(unit, task)| task.block = unit as u32 % 3);
    let mut schedule = Schedule::new(ScheduleSpec { rounds: 3, ..DEFAULT_SPEC }, tasks);
    let mut passes = Vec::new();
    for _ in 0..3 {
        let pass = pass(&mut schedule, 12);
        let mut met: Vec<usize> = pass.iter().map(|unit| unit % 3).collect();
        met.dedup();
        assert_eq!(met.len(), 3, "{pass:?}");
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
    for limit in [BudgetLimit::Extendable, BudgetLimit::Fixed] {
        let script = [uniform_unit(5.0); 40];
        let mut tasks = tasks(&script);
        tasks[39].spans_run = true;
        let mut schedule = Schedule::new(ScheduleSpec { limit, ..DEFAULT_SPEC }, tasks);
        let (mut order, mut now) = (Vec::new(), 0.0);
        // Others are never narrow enough, so that they are mended while time lasts.
        let wide = || vec![CaseStatus { counted_rounds: 8, half_width: Some(0.04), narrowable: Some(0.04) }; 40];
        while let Some(next) = schedule.next_round(now, &mut || wide()) {
            now += next.slice + 5e6;
            order.push(next.unit);
            schedule.record_round(next, 0.0);
        }
        let waited: Vec<usize> = (0..order.len()).filter(|&at| order[at] == 39).collect();
        let last = order.len() - 7;
        assert_eq!(waited, [vec![0], (last..order.len()).collect()].concat(), "{limit:?}");
        assert!((0.95 * DEFAULT_SPEC.budget..=DEFAULT_SPEC.budget).contains(&now), "{now}");
    }
}

/// Plays a script in which every round goes on beyond its timing for as long as this share of what it may; by how much in all.
fn play_with_extension(wanted: ScheduleSpec, script: &[ScriptedUnit], share: f64) -> (Vec<u32>, f64, f64, Vec<f64>) {
    let mut schedule = Schedule::new(wanted, tasks(script));
    let mut rounds = vec![0; script.len()];
    let (mut now, mut beyond) = (0.0, Vec::new());
    while let Some(next) = schedule.next_round(now, &mut || satisfied(&rounds)) {
        let went_on = share * next.max_extension;
        now += next.slice + script[next.unit].later_overhead + went_on;
        rounds[next.unit] += 1;
        beyond.push(went_on);
        schedule.record_round(next, went_on);
    }
    let least = script.iter().enumerate().map(|(unit, _)| schedule.expected_overhead(&schedule.units[unit])).collect();
    (rounds, now, beyond.iter().sum(), least)
}

#[test]
fn extensions_use_only_spare_time() {
    // Forty units of 5 ms need 3.2 s.
    for (budget, share) in [(3.3e9, 1.0), (6e9, 1.0), (6e9, 0.1)] {
        let (rounds, now, beyond, beside) =
            play_with_extension(ScheduleSpec { budget, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], share);
        assert!(rounds.iter().all(|&rounds| rounds >= 8), "{budget}: {rounds:?}");
        assert!(now <= budget + 1.0, "{budget}: {now}");
        assert!(beyond > 0.0, "{budget}");
        // It is no cost of the unit.
        assert!(beside.iter().all(|beside| (beside - 5e6).abs() < 1e-3), "{beside:?}");
    }
    // Where nothing is left, none may.
    let (rounds, now, beyond, _) =
        play_with_extension(ScheduleSpec { budget: 3e9, ..DEFAULT_SPEC }, &[uniform_unit(5.0); 40], 1.0);
    assert_eq!((rounds, beyond), (vec![8; 40], 0.0));
    assert!(now <= 3.2e9 + 1.0, "{now}");
}

#[test]
fn extension_is_capped() {
    let wanted = ScheduleSpec { budget: 1000e9, ..DEFAULT_SPEC };
    let mut schedule = Schedule::new(wanted, tasks(&[uniform_unit(5.0); 4]));
    let next = schedule.next_round(0.0, &mut || panic!("no unit has its minimum")).unwrap();
    assert_eq!(next.max_extension, MAX_EXTENSION);
}

#[test]
fn single_slow_case_uses_whole_budget() {
    // Eight rounds were expected to take 0.8 s each; they take 1.5.
    let slow = ScriptedUnit { expected: guessed(800.0), later_overhead: 1.5e9, first_overhead: 1.5e9 };
    let played = play(FIXED_SPEC, &[slow], satisfied);
    assert!((5..8).contains(&played.rounds[0]) && played.now <= 10e9, "{:?} {}", played.rounds, played.now);
    assert!(played.left_out.is_empty(), "{:?}", played.left_out);
    assert_eq!(played.schedule.short_units(), [0]);
    // With two, the one without room is left out whole.
    let played = play(
        FIXED_SPEC,
        &[uniform_unit(20.0), ScriptedUnit { expected: guessed(800.0), later_overhead: 4e9, first_overhead: 4e9 }],
        satisfied,
    );
    assert_eq!(played.left_out, [1]);
}
