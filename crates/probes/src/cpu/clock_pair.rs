//! The cost of reading the run's clock twice with nothing between.
//!
//! It is the floor of every timing, and is subtracted from each batch. It must not be used as the resolution of a
//! measurement, which batching refines, nor as the cost of clock_gettime.

use kelvin_core::catalogue::cpu::{CLOCK_PAIR, CLOCK_PAIR_DIFFERENCE};
use kelvin_sys::clock::Clock;
use kelvin_sys::kernels;

use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    summary: "An empty start/stop pair of the clock that all probes use",
    method: include_str!("clock_pair.md"),
    run,
    predict,
    ..Probe::measure(&[&CLOCK_PAIR, &CLOCK_PAIR_DIFFERENCE])
};

/// Predicted range, factor either way: published costs of reading the counter differ by that much between steppings and
/// tables.
const SPREAD: f64 = 1.5;

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let clock = bench.clock();
    bench.note(match clock {
        Clock::Counter => format!("pair: {}; {}", kernels::COUNTER_START_TEXT, kernels::COUNTER_STOP_TEXT),
        _ => "pair: two calls of clock_gettime(CLOCK_MONOTONIC_RAW)".into(),
    });
    bench.time(&CLOCK_PAIR, infallible(|pairs| read_pairs(clock, pairs)))?;
    let difference = bench.nanoseconds(median_empty_pair(clock));
    bench.record(&CLOCK_PAIR_DIFFERENCE, vec![difference]);
    Ok(())
}

/// Pairs of readings, back to back; the clock is chosen outside the loop. The readings are discarded: the compiler must
/// keep the assembly, and storing them would be work between the pairs.
fn read_pairs(clock: Clock, pairs: u64) {
    match clock {
        Clock::Counter => {
            for _ in 0..pairs {
                let _ = kernels::counter_start();
                let _ = kernels::counter_stop();
            }
        }
        kernel_clock => {
            for _ in 0..pairs {
                let _ = kernel_clock.start();
                let _ = kernel_clock.stop();
            }
        }
    }
}

/// Median of the ticks between the two readings of an empty pair.
fn median_empty_pair(clock: Clock) -> u64 {
    let mut ticks = [0; 501];
    for pair_ticks in &mut ticks {
        let start = clock.start();
        *pair_ticks = clock.stop().wrapping_sub(start);
    }
    ticks.sort_unstable();
    ticks[ticks.len() / 2]
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, _: &Case) -> Predicted {
    let reason = "it is not published when, within its latency, the instruction samples the counter; the figure is at most \
                  cpu.clock.pair";
    unpredicted_if(*metric == CLOCK_PAIR_DIFFERENCE, reason)?;
    if let Some(source) = facts.machine().kernel.clock_source.get()
        && source != "tsc"
        && facts.machine().architecture == *"x86_64"
    {
        return Err(NoPrediction::new(format!(
            "the kernel's clock source is {source}: the run's clock may not be the counter"
        )));
    }
    let cycles = |pick| published::published_cycles(facts, |core| core.source, pick);
    let first = cycles(|core| core.counter_reads.map(|[first, _]| first))?;
    let second = cycles(|core| core.counter_reads.map(|[_, second]| second))?;
    let fence = cycles(|core| core.fence)?;
    let cycles = first.expr("rdtsc") + second.expr("rdtscp") + 3.0 * fence.expr("lfence");
    let pair = (cycles.widen(SPREAD) / published::measured_frequency(facts)?)
        .source("Agner Fog, Instruction tables, 2022-11-04: RDTSC, RDTSCP and LFENCE");
    Ok(pair.predict(PredictionBasis::Published, "two reads and fences"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::Fact;
    use kelvin_core::catalogue::cpu::FREQUENCY;
    use kelvin_harness::MeasuredValue;

    #[test]
    fn skylake_at_2_ghz_takes_34_5_ns() {
        let mut machine = testing::machine();
        machine.cpu.microarchitecture = Fact::known("Skylake".into(), "a test");
        let measured =
            |id: &str, _: &Case| (id == FREQUENCY.id.as_str()).then_some(MeasuredValue { value: 2e9, half_width: 0.0 });
        let prediction = predict(&PredictionInputs::new(&machine, &measured), &CLOCK_PAIR, &Case::new()).unwrap();
        assert_eq!(prediction.value, 34.5);
        assert_eq!((prediction.low, prediction.high), (23.0, 51.75));
        assert!(predict(&PredictionInputs::new(&machine, &measured), &CLOCK_PAIR_DIFFERENCE, &Case::new()).is_err());
        machine.kernel.clock_source = Fact::known("hpet".into(), "a test");
        assert!(predict(&PredictionInputs::new(&machine, &measured), &CLOCK_PAIR, &Case::new()).is_err());
    }

    #[test]
    fn pairs_are_read_on_any_clock() {
        let script = kelvin_sys::clock::ScriptedClock::leak(5);
        read_pairs(Clock::Scripted(script), 10);
        assert_eq!(Clock::Scripted(script).start(), 100);
        assert_eq!(median_empty_pair(Clock::Scripted(script)), 5);
    }
}
