//! A few figures of one CPU of each kind of core: frequency, a null call, a switch, a load from memory.
//!
//! It shows how the kinds differ, where all other figures are of the measured CPU alone. It must not be used as the figures of a program that
//! the scheduler moves between kinds.

use kelvin_core::catalogue::cpu::{CORE_CALL, CORE_FREQUENCY, CORE_KIND, CORE_LOAD, CORE_PROBE, CORE_SWITCH, ON_CPU};
use kelvin_core::catalogue::os::{HandoffMechanism, HandoffTask};
use kelvin_sys::memory::{PagePolicy, PointerRing};
use kelvin_sys::{cpu, kernels};

use crate::memory::axes::skip_if_out_of_memory;
use crate::os::partner::TokenPartner;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: CORE_PROBE.as_str(),
    summary: "Frequency, null call, context switch and load from memory of one CPU of each kind of core",
    method: include_str!("core_kinds.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&CORE_FREQUENCY, &CORE_CALL, &CORE_SWITCH, &CORE_LOAD])
};

/// Memory of the loads, and bytes for each line of them.
const SET_BYTES: usize = 64 << 20;
const BYTES_PER_LINE: usize = 1 << 10;

/// One CPU of each kind: the measured one of its own.
fn cases(machine: &Machine, _: Effort) -> Vec<Case> {
    let topology = &machine.topology;
    let kinds = topology.core_kinds.get().map_or(&[][..], Vec::as_slice);
    let allowed = topology.allowed.get().map_or(&[][..], Vec::as_slice);
    let measured_cpu = machine.cpu.number;
    let cpu_of = |cpus: &[u32]| {
        let own = measured_cpu.filter(|cpu| cpus.contains(cpu));
        own.or_else(|| allowed.iter().rev().copied().find(|cpu| cpus.contains(cpu)))
    };
    let cpus = kinds.iter().enumerate().filter_map(|(index, kind)| Some((index, cpu_of(&kind.cpus)?)));
    let cases: Vec<Case> = cpus.map(|(index, cpu)| kind_case(index as u64 + 1, cpu)).collect();
    // One case, to report why there is nothing to compare.
    if cases.len() < 2 { vec![kind_case(0, measured_cpu.unwrap_or_default())] } else { cases }
}

fn kind_case(kind: u64, cpu: u32) -> Case {
    Case::new().with_number(CORE_KIND, kind).with_number(ON_CPU, cpu.into())
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let kind = required(CORE_KIND.number_in(case), case)?;
    skip_if(kind == 0, "needs cores of several kinds; those that this process may use are of one")?;
    let cpu = required_u32(ON_CPU, case)?;
    cpu::pin(&[cpu]).or_fail(format!("cannot run on CPU {cpu}"))?;
    let cycles = kelvin_harness::multiply_cycles(bench.clock()).map_err(ProbeError::skip)?;
    bench.note(format!("on CPU {cpu}; a multiply takes {cycles} cycles there, by comparison with one-cycle adds"));
    let work = kernels::CHAIN_LENGTH * u64::from(cycles);
    bench.time_work(&CORE_FREQUENCY, work as f64, infallible(kernels::chain_multiply))?;
    bench.time(&CORE_CALL, |calls| {
        std::hint::black_box(kernels::null_system_calls(calls));
        Ok(())
    })?;
    let mut partner = TokenPartner::start(HandoffMechanism::Pipe, HandoffTask::Process, cpu)?;
    bench.time_parts([&CORE_SWITCH], |clock, trips| {
        let (ticks, outcome) = clock.time(|| partner.round_trips(trips));
        outcome.map(|()| [ticks as f64 / 2.0])
    })?;
    partner.finish()?;
    let ring = PointerRing::line_per_piece(SET_BYTES, BYTES_PER_LINE, PagePolicy::Huge, bench.seed());
    let mut ring = skip_if_out_of_memory(SET_BYTES, ring)?;
    bench.time_parts([&CORE_LOAD], |clock, loads| Ok([ring.chase_uncached(clock, loads) as f64]))
}

/// Predicted range of another kind of core, as shares of the figure of the measured one: small cores of a hybrid run at half to all of the
/// frequency, and do half to all of the work of a cycle.
const KIND_RANGE: [f64; 2] = [0.8, 4.0];

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let machine = facts.machine();
    let cpu = required_u32(ON_CPU, case)?;
    let measured_cpu = machine.cpu.number.or_unpredicted("it is not known which CPU was measured")?;
    unpredicted_if(cpu == measured_cpu, "the figures of this CPU are those of the other probes")?;
    let measured_kind = machine.topology.kind_index(measured_cpu);
    let measured_kind = measured_kind.or_unpredicted("the kind of the measured CPU is not known")?;
    let own = measured(facts, metric, &kind_case(measured_kind as u64 + 1, measured_cpu))?;
    let [fast, slow] = KIND_RANGE;
    let range = if metric.id == CORE_FREQUENCY.id { [1.0 / slow, 1.0 / fast] } else { [fast, slow] };
    Ok(own.of_value(range).derived("another kind of core"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::{CoreKind, Fact, MeasuredValue};

    fn machine(kinds: &[(&str, std::ops::Range<u32>)]) -> Machine {
        let mut machine = testing::machine();
        let kind = |(name, cpus): &(&str, std::ops::Range<u32>)| CoreKind {
            name: (*name).into(),
            cpus: cpus.clone().collect(),
            maximum_hz: None,
            capacity: None,
        };
        machine.topology.core_kinds = Fact::known(kinds.iter().map(kind).collect(), "a test");
        machine.topology.allowed = Fact::known((0..14).collect(), "a test");
        machine.cpu.number = Some(6);
        machine
    }

    #[test]
    fn each_kind_has_one_cpu() {
        let hybrid = machine(&[("P-core", 0..8), ("E-core", 8..12), ("LP E-core", 12..14)]);
        assert_eq!(cases(&hybrid, Effort::Quick), [(1, 6), (2, 11), (3, 13)].map(|(kind, cpu)| kind_case(kind, cpu)));
        assert_eq!(cases(&machine(&[]), Effort::Default), [kind_case(0, 6)], "all cores are of one kind");
        let mut restricted = hybrid;
        restricted.topology.allowed = Fact::known((0..8).collect(), "a test");
        assert_eq!(cases(&restricted, Effort::Default), [kind_case(0, 6)], "the others may not be used");
    }

    #[test]
    fn other_kinds_are_predicted_from_the_measured_one() {
        let hybrid = machine(&[("P-core", 0..8), ("E-core", 8..12)]);
        let measured = |_: &str, case: &Case| {
            let value = if ON_CPU.number_in(case) == Some(6) { 100.0 } else { 0.0 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&hybrid, &measured);
        let call = predict(&facts, &CORE_CALL, &kind_case(2, 11)).unwrap();
        assert_eq!((call.value, call.low, call.high), (100.0, 80.0, 400.0));
        let frequency = predict(&facts, &CORE_FREQUENCY, &kind_case(2, 11)).unwrap();
        assert_eq!((frequency.low, frequency.high), (25.0, 125.0));
        assert!(predict(&facts, &CORE_CALL, &kind_case(1, 6)).is_err());
    }
}
