//! The bench over scripted time.

use super::*;
use kelvin_core::{Batches, Case, SteadyState};
use kelvin_sys::clock::ScriptedClock;

static METRIC: Metric = Metric::duration("test.operation", "An operation of a script");
static OTHER: Metric = Metric::duration("test.other", "Another one");

fn request(slice: u64) -> RoundRequest {
    RoundRequest {
        probe: "test.operation".into(),
        case: Case::new(),
        round: 0,
        slice,
        extension: None,
        time_limit: u64::MAX,
        seed: 1,
        parent_pid: 0,
        setup: Setup::scripted(kelvin_sys::cpu::current()),
    }
}

fn batches(reading: &MetricReadings) -> &Batches {
    match &reading.readings {
        Readings::Batches(batches) => batches,
        Readings::Scalars(_) => panic!("scalars"),
    }
}

/// Whether a sample is tagged as warm-up, with any other tags.
fn warm_up_flags(batches: &Batches) -> Vec<bool> {
    batches.tags.iter().map(|tags| tags.intersects(SampleTags::WARM_UP)).collect()
}

#[test]
fn batches_reach_minimum_length() {
    let script = ScriptedClock::leak(20);
    let request = request(5_000_000);
    let mut bench = Bench::new(&request, Clock::Scripted(script), 1);
    bench
        .time(&METRIC, |iterations| {
            script.advance(100 * iterations);
            Ok(())
        })
        .unwrap();
    let readings = bench.into_readings();
    let batches = batches(&readings[0]);
    // Doubling from one: 512 iterations of 100 ns are the first to reach 50 us.
    assert!(batches.iterations.iter().all(|&iterations| iterations == 512));
    assert!(batches.nanoseconds.iter().all(|&time| time == 51_200.0 + 20.0));
    assert_eq!(readings[0].overhead.clock_pair, 20.0);
    assert_eq!(batches.canaries[&Canary::Chain].len(), batches.len() + 1);
    assert_eq!(batches.neighbours(Canary::Chain, batches.len() - 1), Some((20.0, 20.0)));
    assert!(batches.canaries.keys().eq(&[Canary::Chain, Canary::Block]));
}

#[test]
fn warm_up_lasts_until_the_medians_agree() {
    let script = ScriptedClock::leak(0);
    let request = request(20_000_000);
    let mut bench = Bench::new(&request, Clock::Scripted(script), 1);
    let mut calls = 0;
    bench
        .time_each([&METRIC], |clock| {
            calls += 1;
            let start = clock.start();
            // The first forty operations are slow, and differ from one another.
            script.advance(if calls < 40 { 200_000 - 3000 * calls } else { 70_000 });
            Ok([clock.stop() - start])
        })
        .unwrap();
    let readings = bench.into_readings();
    let warm = warm_up_flags(batches(&readings[0]));
    let first_steady = warm.iter().position(|&warm| !warm).unwrap();
    assert!(warm[..first_steady].iter().all(|&warm| warm) && warm[first_steady..].iter().all(|&warm| !warm));
    let steady_times = &batches(&readings[0]).nanoseconds[first_steady..];
    assert!(steady_times.len() > 50 && steady_times.iter().all(|&time| time < 110_000.0), "{first_steady}");
}

#[test]
fn operation_longer_than_slice_gets_min_samples() {
    let flags_for_time = |nanoseconds| {
        let script = ScriptedClock::leak(0);
        let request = request(1_000_000);
        let mut bench = Bench::new(&request, Clock::Scripted(script), 1);
        bench
            .time_each([&METRIC], |clock| {
                let start = clock.start();
                script.advance(nanoseconds);
                Ok([clock.stop() - start])
            })
            .unwrap();
        warm_up_flags(batches(&bench.into_readings()[0]))
    };
    assert_eq!(flags_for_time(30_000_000), [true, false, false, false, false, false]);
    // Five of these would take a second: two must do.
    assert_eq!(flags_for_time(200_000_000), [true, false, false]);
}

#[test]
fn batch_parts_may_be_negative() {
    let script = ScriptedClock::leak(10);
    let request = request(4_000_000);
    let mut bench = Bench::new(&request, Clock::Scripted(script), 2);
    bench
        .time_parts([&METRIC, &OTHER], |clock, iterations| {
            let start = clock.start();
            script.advance(300 * iterations);
            let time = (clock.stop() - start) as f64;
            Ok([time, 100.0 * iterations as f64 - time])
        })
        .unwrap();
    let readings = bench.into_readings();
    let (first, second) = (batches(&readings[0]), batches(&readings[1]));
    // Doubling from one: 256 iterations of 300 ns are the first to reach 50 us.
    assert!(first.iterations.iter().chain(&second.iterations).all(|&iterations| iterations == 256));
    assert!(first.nanoseconds.iter().all(|&time| time == 76_810.0));
    assert!(second.nanoseconds.iter().all(|&time| time == 25_600.0 - 76_810.0));
    assert_eq!(first.canaries[&Canary::Chain].len(), first.len() + 1);
    assert_eq!(first.canaries, second.canaries);
}

#[test]
fn individually_timed_operations_share_canaries() {
    let script = ScriptedClock::leak(10);
    let request = request(4_000_000);
    let mut bench = Bench::new(&request, Clock::Scripted(script), 2);
    bench
        .time_each([&METRIC, &OTHER], |clock| {
            let start = clock.start();
            script.advance(3000);
            let half = clock.stop();
            script.advance(4000);
            Ok([half - start, clock.stop() - start])
        })
        .unwrap();
    let readings = bench.into_readings();
    assert_eq!(readings.len(), 2);
    let (first, second) = (batches(&readings[0]), batches(&readings[1]));
    assert!(first.nanoseconds.iter().all(|&time| time == 3010.0));
    assert!(second.nanoseconds.iter().all(|&time| time == 7020.0));
    assert!(first.canary_stride > 1);
    let expected = first.len().div_ceil(first.canary_stride) + 1;
    assert_eq!(first.canaries[&Canary::Chain].len(), expected);
    assert_eq!(first.canaries, second.canaries);
}

#[test]
fn back_to_back_operations_share_canaries_and_tags() {
    let script = ScriptedClock::leak(10);
    let request = request(4_000_000);
    let mut bench = Bench::new(&request, Clock::Scripted(script), 1);
    let mut operations = 0;
    bench
        .time_back_to_back([&METRIC], |clock| {
            operations += 1;
            let start = clock.start();
            script.advance(20_000);
            Ok([clock.stop() - start])
        })
        .unwrap();
    let readings = bench.into_readings();
    let batches = batches(&readings[0]);
    assert!(batches.len() > 100 && batches.nanoseconds.iter().all(|&time| time == 20_010.0));
    // Canaries at the beginning, after each check, and at the end; after each but the last some operations are
    // dropped, as are the first two.
    let guarded = batches.len().div_ceil(CHECK_STRIDE);
    assert_eq!((batches.canary_stride, batches.canaries[&Canary::Chain].len()), (CHECK_STRIDE, guarded + 1));
    assert_eq!(operations, 2 + batches.len() + guarded * BACK_TO_BACK_REWARM as usize);
    // All samples of a check share their tags, except warm-up.
    for group in batches.tags.chunks(CHECK_STRIDE) {
        let thread = |tags: &SampleTags| {
            [SampleTags::PREEMPTED, SampleTags::MAJOR_FAULT, SampleTags::MIGRATED].map(|flag| tags.intersects(flag))
        };
        assert!(group.iter().all(|tags| thread(tags) == thread(&group[0])));
    }
}

#[test]
fn samples_after_canary_pause_are_dropped() {
    // Woken within 5 us of its last turn it answers in 10 us; after a longer pause it slept deeper, and takes 30 for three turns. A
    // canary takes longer than that.
    let times = |is_back_to_back: bool| {
        let script = ScriptedClock::leak(2_000);
        let request = request(40_000_000);
        let mut bench = Bench::new(&request, Clock::Scripted(script), 1);
        let (mut last, mut slow_turns) = (0, 0u32);
        let work = |_: Clock| {
            slow_turns = if script.now() - last > 5_000 { 3 } else { slow_turns };
            let duration = if slow_turns > 0 { 30_000 } else { 10_000 };
            slow_turns = slow_turns.saturating_sub(1);
            script.advance(duration);
            last = script.now();
            Ok([duration])
        };
        if is_back_to_back { bench.time_back_to_back([&METRIC], work) } else { bench.time_each([&METRIC], work) }
            .unwrap();
        let readings = bench.into_readings();
        let batches = batches(&readings[0]);
        let steady =
            batches.nanoseconds.iter().zip(&batches.tags).filter(|(_, tags)| !tags.intersects(SampleTags::WARM_UP));
        steady.map(|(&time, _)| time).collect::<Vec<_>>()
    };
    assert!(times(false).contains(&30_000.0), "the partner notices the canaries");
    let back_to_back_times = times(true);
    assert!(
        back_to_back_times.len() > 100 && back_to_back_times.iter().all(|&time| time == 10_000.0),
        "{back_to_back_times:?}"
    );
}

/// A core whose canaries read 20 ns, as a script with that step makes them.
fn extension(milliseconds: u64) -> Option<Extension> {
    let state = SteadyState { nanoseconds: 20.0, tolerance: 0.02 };
    Some(Extension { max_nanoseconds: milliseconds * 1_000_000, core: CoreSteadyState { chain: state, block: state } })
}

/// Times operations of 60 us one by one, or of 10 us back to back, which take half as long again on a core that is disturbed
/// at these nanoseconds: their batches, and by how many milliseconds the round went on.
fn timed_with_interference(
    metric: &Metric,
    max_extension: u64,
    is_back_to_back: bool,
    disturbed: impl Fn(u64) -> bool,
) -> (Batches, f64) {
    let script = ScriptedClock::leak(20);
    let request = RoundRequest { extension: extension(max_extension), ..request(5_000_000) };
    let mut bench = Bench::new(&request, Clock::Scripted(script), 1);
    let work = |clock: Clock| {
        let start = clock.start();
        let is_disturbed = disturbed(script.now());
        script.set_step(if is_disturbed { 32 } else { 20 });
        let duration = if is_back_to_back { 10_000 } else { 60_000 };
        script.advance(if is_disturbed { duration * 3 / 2 } else { duration });
        Ok([clock.stop() - start])
    };
    if is_back_to_back { bench.time_back_to_back([metric], work) } else { bench.time_each([metric], work) }.unwrap();
    let milliseconds = bench.used_extension() as f64 / 1e6;
    (batches(&bench.into_readings()[0]).clone(), milliseconds)
}

fn count_awaited(batches: &Batches) -> usize {
    batches.tags.iter().filter(|tags| tags.intersects(SampleTags::AWAITED)).count()
}

#[test]
fn quiet_core_needs_no_extension() {
    for is_back_to_back in [false, true] {
        let (batches, overrun) = timed_with_interference(&METRIC, 50, is_back_to_back, |_| false);
        assert_eq!((overrun, count_awaited(&batches)), (0.0, 0));
        let (as_found, _) =
            timed_with_interference(&METRIC.headline(HeadlineSamples::AsFound), 50, is_back_to_back, |_| false);
        assert_eq!(batches.len(), as_found.len(), "{is_back_to_back}");
    }
    // Nor where most of it was quiet, or where the metric is of what is found.
    let (batches, overrun) = timed_with_interference(&METRIC, 50, false, |now| now < 1_000_000);
    assert_eq!((overrun, count_awaited(&batches)), (0.0, 0));
    let metric = METRIC.headline(HeadlineSamples::AsFound);
    assert_eq!(timed_with_interference(&metric, 50, false, |_| true).1, 0.0);
    let unguarded = METRIC.canaries(Guards::NONE);
    assert_eq!(timed_with_interference(&unguarded, 50, false, |_| true).1, 0.0);
}

#[test]
fn disturbed_round_extends_until_core_is_quiet() {
    for is_back_to_back in [false, true] {
        let (batches, overrun) = timed_with_interference(&METRIC, 50, is_back_to_back, |now| now < 21_000_000);
        let regular_count = batches.len() - count_awaited(&batches);
        assert!((15.5..35.0).contains(&overrun), "{is_back_to_back}: {overrun}");
        assert!(batches.tags[..regular_count].iter().all(|tags| !tags.intersects(SampleTags::AWAITED)));
        // What was disturbed meanwhile is forgotten, apart from its two ends.
        let after = &batches.nanoseconds[regular_count..];
        let quiet_count =
            after.iter().filter(|&&time| time < if is_back_to_back { 12_000.0 } else { 70_000.0 }).count();
        let disturbed = after.len() - quiet_count;
        assert!(
            quiet_count >= regular_count / 3 && quiet_count <= regular_count + batches.canary_stride,
            "{is_back_to_back}: {quiet_count} of {regular_count}"
        );
        assert!(disturbed <= 3 * batches.canary_stride, "{is_back_to_back}: {disturbed}");
        assert_eq!(batches.canaries[&Canary::Chain].len(), batches.len().div_ceil(batches.canary_stride) + 1);
    }
}

#[test]
fn never_quiet_core_extends_to_maximum() {
    let (batches, overrun) = timed_with_interference(&METRIC, 20, false, |_| true);
    assert!((19.0..=20.0).contains(&overrun), "{overrun}");
    assert!(count_awaited(&batches) <= 3 * batches.canary_stride, "{}", count_awaited(&batches));
    assert_eq!(batches.canaries[&Canary::Block].len(), batches.len().div_ceil(batches.canary_stride) + 1);
    // One that comes and goes leaves both ends of each disturbance.
    let (batches, _) = timed_with_interference(&METRIC, 50, false, |now| now < 6_000_000 || now / 1_000_000 % 2 == 0);
    let quiet_count = batches.nanoseconds.iter().filter(|&&time| time < 70_000.0).count();
    assert!(quiet_count >= 6, "{quiet_count}");
    assert_eq!(batches.canaries[&Canary::Block].len(), batches.len().div_ceil(batches.canary_stride) + 1);
}

#[test]
fn long_operations_are_not_extended() {
    let script = ScriptedClock::leak(32);
    let request = RoundRequest { extension: extension(50), ..request(5_000_000) };
    let mut bench = Bench::new(&request, Clock::Scripted(script), 1);
    let work = |clock: Clock| {
        let start = clock.start();
        script.advance(20_000_000);
        Ok([clock.stop() - start])
    };
    bench.time_each([&METRIC], work).unwrap();
    assert_eq!(bench.used_extension(), 0);
}

#[test]
fn late_note_goes_to_last_reading() {
    let mut request = request(1_000_000);
    request.setup.clock.hertz = 2e9;
    let mut bench = Bench::new(&request, Clock::Scripted(ScriptedClock::leak(1)), 1);
    bench.note_last_reading("of the first");
    bench.note("of the first as well");
    bench.record(&METRIC, vec![1.0]);
    bench.note_last_reading("counted");
    bench.record(&OTHER, vec![1.0]);
    assert_eq!((bench.ticks(500), bench.hertz()), (1000, 2e9));
    let readings = bench.into_readings();
    assert_eq!(readings[0].notes, ["of the first", "of the first as well", "counted"]);
    assert!(readings[1].notes.is_empty());
}

#[test]
fn timed_region_error_ends_probe() {
    let request = request(1_000_000);
    let mut bench = Bench::new(&request, Clock::Scripted(ScriptedClock::leak(1)), 1);
    let outcome = bench.time(&METRIC, |_| Err(ProbeError::fail("write: broken pipe")));
    assert_eq!(outcome, Err(ProbeError::fail("write: broken pipe")));
    assert!(bench.into_readings().is_empty());
}

#[test]
fn zero_time_operation_is_error() {
    let request = request(1_000_000);
    let mut bench = Bench::new(&request, Clock::Scripted(ScriptedClock::leak(1)), 1);
    assert!(matches!(bench.time(&METRIC, |_| Ok(())), Err(ProbeError::Fail(_))));
}
