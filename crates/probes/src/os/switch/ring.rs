//! Switching among many processes that each have a working set: the cost of a switch with cache refills.
//!
//! A curve over the number of processes and the size of their working sets. It must not be used as the cost of one
//! refill: what stays in the caches depends on all processes together.

use std::hint::black_box;
use std::sync::Arc;

use kelvin_core::catalogue::mem::BANDWIDTH_WRITE;
use kelvin_core::catalogue::os::{
    HandoffMechanism, PROCESSES, SWITCH_CHANNEL_CALLS, SWITCH_RING, SWITCH_RING_CALLS, SWITCH_RING_SWITCHES,
    WORKING_SET,
};
use kelvin_sys::handoff::Pipe;
use kelvin_sys::memory::{Arena, LINE_BYTES, PagePolicy};
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::shared_memory::Shared;
use kelvin_sys::usage::{UsageScope, read_usage};

use super::process_switch;
use crate::memory::{bandwidth, memory_budget};
use crate::prelude::*;
use crate::published;

pub(in crate::os) static PROBE: Probe = Probe {
    summary: "Switching among 2 to 96 processes, each with a working set of up to 64 KiB",
    method: include_str!("ring.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&SWITCH_RING, &SWITCH_RING_CALLS, &SWITCH_RING_SWITCHES])
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let processes = by_effort(effort, [&[2, 16][..], &[2, 8, 16, 32, 96], &[2, 4, 8, 16, 32, 64, 96]]);
    let sets = by_effort(effort, [&[0, 16 << 10][..], &[0, 16 << 10, 64 << 10], &[0, 4 << 10, 16 << 10, 64 << 10]]);
    numbers(WORKING_SET, sets).numbers(PROCESSES, processes)
}

/// The working set of a process of the ring.
struct WorkingSet(Option<Arena>);

impl WorkingSet {
    fn new(bytes: usize) -> kelvin_sys::Result<Self> {
        let arena = (bytes > 0).then(|| Arena::map(bytes, PagePolicy::Base)).transpose()?;
        let mut set = Self(arena);
        set.increment_lines();
        Ok(set)
    }

    /// Adds one to a word in every line.
    #[inline(always)]
    fn increment_lines(&mut self) {
        if let Some(arena) = &mut self.0 {
            for line in black_box(arena.as_mut_slice()).chunks_exact_mut(LINE_BYTES) {
                if let Some(word) = line.first_chunk_mut() {
                    *word = u64::from_le_bytes(*word).wrapping_add(1).to_le_bytes();
                }
            }
        }
    }

    /// Whether every word holds this count.
    fn has_count(&self, count: u64) -> bool {
        self.0.as_ref().is_none_or(|arena| {
            arena.as_slice().chunks_exact(LINE_BYTES).all(|line| line[..size_of::<u64>()] == count.to_le_bytes())
        })
    }
}

/// A ring of processes, this one being the first.
struct ProcessRing {
    /// The pipe at index `i` leads from process `i` to the next.
    pipes: Arc<Vec<Pipe>>,
    members: Vec<PartnerTask>,
    board: Arc<Shared<PartnerStatus>>,
    set: WorkingSet,
    laps: u64,
    /// Context switches of this process before the first lap.
    switches_before: u64,
}

impl ProcessRing {
    fn new(processes: usize, set: usize, cpu: u32) -> ProbeResult<Self> {
        let start_error = || format!("cannot build a ring of {processes} processes");
        let pipes: kelvin_sys::Result<Vec<Pipe>> = (0..processes).map(|_| Pipe::new()).collect();
        let pipes = Arc::new(pipes.or_fail(start_error())?);
        let board = PartnerStatus::new().or_fail(start_error())?;
        let own_set = WorkingSet::new(set).or_fail(start_error())?;
        let mut ring = Self { pipes, members: Vec::new(), board, set: own_set, laps: 0, switches_before: 0 };
        for index in 1..processes {
            let pipes = Arc::clone(&ring.pipes);
            let member = PartnerTask::start_with_status(PartnerKind::Process, cpu, &ring.board, move |board| {
                // A process that fails records it on the board and passes the byte on, so that the lap ends and is
                // checked.
                process_loop(&pipes[index - 1], &pipes[index], set, board).inspect_err(|error| {
                    board.fail(error);
                    let _ = pipes[index].write_byte();
                })
            });
            ring.members.push(member.or_fail(start_error())?);
        }
        ring.switches_before = ring.own_switches();
        Ok(ring)
    }

    /// Sends the byte around.
    #[inline(always)]
    fn run_laps(&mut self, count: u64) -> ProbeResult {
        let (first_pipe, last_pipe) = (&self.pipes[0], &self.pipes[self.pipes.len() - 1]);
        for _ in 0..count {
            first_pipe.write_byte()?;
            last_pipe.read_byte()?;
            self.set.increment_lines();
            self.board.check()?;
        }
        self.laps += count;
        Ok(())
    }

    /// Ends the processes and checks their work and this one's; returns context switches per pass.
    fn finish(mut self) -> ProbeResult<f64> {
        self.board.stop();
        self.run_laps(1)?;
        for member in &mut self.members {
            member.join()?;
        }
        let (hand_overs, switches) = (self.laps * self.pipes.len() as u64, self.board.switches() + self.own_switches());
        let per_pass = switches as f64 / hand_overs as f64;
        let reason = format!(
            "the byte was passed {hand_overs} times but the processes had only {switches} context switches: it \
             moved without switches"
        );
        fail_if(per_pass < 0.98, reason)?;
        Ok(per_pass)
    }

    /// Context switches of this process since the ring was built.
    fn own_switches(&self) -> u64 {
        let usage = read_usage(UsageScope::Thread);
        usage.voluntary_switches + usage.involuntary_switches - self.switches_before
    }
}

/// The loop of a process of the ring.
fn process_loop(from: &Pipe, to: &Pipe, set: usize, board: &PartnerStatus) -> kelvin_sys::Result<()> {
    let mut set = WorkingSet::new(set)?;
    let mut laps = 0;
    loop {
        from.read_byte()?;
        set.increment_lines();
        laps += 1;
        let is_last = board.is_stopping();
        if is_last && !set.has_count(laps + 1) {
            return Err(kelvin_sys::Error::other("a working set was not incremented as often as the byte came by"));
        }
        to.write_byte()?;
        if is_last {
            return Ok(());
        }
    }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let (processes, set) = (required_number(PROCESSES, case)?.max(2), required_number(WORKING_SET, case)?);
    let mut ring = ProcessRing::new(processes as usize, set as usize, bench.cpu())?;
    let mut own_set = WorkingSet::new(set as usize)?;
    let pipe = Pipe::new()?;
    ring.run_laps(2)?;
    bench.time_parts([&SWITCH_RING, &SWITCH_RING_CALLS], |clock, passes| {
        // Only whole laps can be timed, scaled to the requested passes.
        let laps = passes.div_ceil(processes);
        let start = clock.start();
        ring.run_laps(laps)?;
        let ring_ticks = clock.stop().wrapping_sub(start) as f64 * passes as f64 / (laps * processes) as f64;
        let start = clock.start();
        for _ in 0..passes {
            pipe.write_byte()?;
            pipe.read_byte()?;
            own_set.increment_lines();
        }
        let own_ticks = clock.stop().wrapping_sub(start) as f64;
        Ok([ring_ticks - own_ticks, own_ticks])
    })?;
    let switches = ring.finish()?;
    bench.record(&SWITCH_RING_SWITCHES, vec![switches]);
    Ok(())
}

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let (processes, set) = (required_number(PROCESSES, case)?, required_number(WORKING_SET, case)?);
    if *metric == SWITCH_RING_SWITCHES {
        return Ok(switch_count(processes));
    }
    let (time, factor, name) = match (*metric == SWITCH_RING_CALLS, set) {
        // A pass of one task alone: its calls, and a store to each line of its set.
        (true, _) => {
            let calls = measured(facts, &SWITCH_CHANNEL_CALLS, &HandoffMechanism::Pipe.between_processes())?;
            match set {
                0 => (calls, 1.3, "own calls"),
                _ => (calls + write_time(facts, set, set)?, 1.3, "own calls and writing"),
            }
        }
        (false, 0) => return empty_pass(facts, processes, case),
        // One without working sets, and what writing the set takes longer where all of them lie than where it lies alone.
        (false, _) => {
            let case = Case::new().with_number(PROCESSES, processes).with_number(WORKING_SET, 0);
            let empty_ring = measured(facts, &SWITCH_RING, &case)?;
            let (own_time, shared_time) = (write_time(facts, set, set)?, write_time(facts, set, processes * set)?);
            (empty_ring + (shared_time - own_time).at_least_zero(), 1.5, "refilled")
        }
    };
    Ok(time.widen(factor).derived(name))
}

/// Adding one to a word in every line of a set, of this many bytes among all that are used one after another. A cache
/// holds what takes two thirds of it: the rest is the kernel's, and physical pages do not spread evenly.
fn write_time(facts: &PredictionInputs<'_>, set: u64, total_bytes: u64) -> Predicted<Expr> {
    let machine = facts.machine();
    let is_sufficient = |bytes: u64| 3 * total_bytes <= 2 * bytes;
    let first_level = memory_budget::data_caches(machine).first().map(|cache| cache.bytes);
    if first_level.is_some_and(is_sufficient) {
        let cycles = quantity("lines of the set, one a cycle in L1", set as f64 / LINE_BYTES as f64, Unit::Cycles);
        return Ok((cycles / published::measured_frequency(facts)?).variant("a line a cycle in L1"));
    }
    let (variant, case) = match memory_budget::second_level_bytes(machine).is_some_and(is_sufficient) {
        true => ("in L2", bandwidth::second_level_case(machine)?),
        false => ("beyond L2", bandwidth::case_for_set(machine, total_bytes)),
    };
    let set = bytes_of("working set", set);
    Ok((set / measured(facts, &BANDWIDTH_WRITE, &case)?).variant(variant))
}

/// Switches of a pass. Of two processes the one that was preempted while it woke the other is the next to run anyway; of more it runs once
/// more just to wait.
fn switch_count(processes: u64) -> Prediction {
    let (value, name) = match processes {
        ..=2 => (Expr::from(1.0).of_value([1.0, 1.1]), "one"),
        _ => {
            let (one_switch, two_switches) = (Expr::from(1.0), Expr::from(2.0));
            (
                one_switch.clone().geometric_mean(two_switches.clone()).with_bounds(&one_switch, &two_switches),
                "one or two",
            )
        }
    };
    let processes = fact("processes", processes as f64, Unit::Count, "the case");
    value.with_input(&processes).derived(name)
}

/// Address spaces whose translations a CPU keeps at a time.
const KEPT_ADDRESS_SPACES: u64 = 6;
const KEPT_ADDRESS_SPACES_SOURCE: &str = "Linux arch/x86/mm/tlb.c, tlbflush.h: TLB_NR_DYN_ASIDS";

/// A pass among this many processes without working sets.
fn empty_pass(facts: &PredictionInputs<'_>, processes: u64, case: &Case) -> Predicted {
    let switch = process_switch(facts)?;
    if processes <= 2 {
        let remark = "without a working set there is nothing to refill";
        return Ok(switch.widen(1.3).explained(PredictionBasis::Derived, "as a pipe", remark));
    }
    let switches = switch * measured(facts, &SWITCH_RING_SWITCHES, case)?;
    let space_count = KEPT_ADDRESS_SPACES as f64;
    let spaces = published("address spaces kept", space_count, Unit::Count, KEPT_ADDRESS_SPACES_SOURCE);
    let (minimum, expected) = (switches.clone().widen(1.3), switches.clone().with_input(&spaces));
    if processes > KEPT_ADDRESS_SPACES && facts.machine().architecture == *"x86_64" {
        // Up to twice that for translations that are not kept.
        let double = 2.0 * switches;
        let pass = expected.geometric_mean(double.clone()).with_bounds(&minimum, &double.widen(1.3));
        return Ok(pass.derived("switches and translations"));
    }
    Ok(expected.widen(1.3).derived("switches of a pass"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::MeasuredValue;
    use kelvin_core::catalogue::cpu::FREQUENCY;
    use kelvin_core::catalogue::mem::BYTES;
    use kelvin_core::catalogue::os::SWITCH_COST;

    use super::*;
    use crate::testing::{self, with_facts};

    #[test]
    fn working_set_counts_passes() {
        for bytes in [0, 64, 4096, 64 << 10] {
            let mut set = WorkingSet::new(bytes).unwrap();
            assert!(set.has_count(1));
            for _ in 0..300 {
                set.increment_lines();
            }
            assert!(set.has_count(301));
            assert_eq!(set.has_count(300), bytes == 0);
        }
    }

    #[test]
    fn process_ring_completes_laps() {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        std::thread::spawn(move || {
            kelvin_sys::cpu::pin(&[cpu]).unwrap();
            let mut ring = ProcessRing::new(5, 4096, cpu).unwrap();
            ring.run_laps(30).unwrap();
            assert!(ring.set.has_count(31));
            assert!((0.98..3.0).contains(&ring.finish().unwrap()));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn empty_ring_follows_from_pipes() {
        let case = |processes, set| Case::new().with_number(PROCESSES, processes).with_number(WORKING_SET, set);
        let values = [(SWITCH_COST.id.as_str(), Some(1000.0)), (SWITCH_RING_SWITCHES.id.as_str(), Some(1.25))];
        with_facts(&values, |facts| {
            let predicted = |processes| predict(facts, &SWITCH_RING, &case(processes, 0)).unwrap();
            assert_eq!([2, 6].map(|processes| predicted(processes).value), [1000.0, 1250.0]);
            assert!(
                (predicted(7).value - 1250.0 * 2.0_f64.sqrt()).abs() < 1e-9
                    && (predicted(7).high - 3250.0).abs() < 1e-9
            );
            // An empty ring of as many is not known.
            assert!(predict(facts, &SWITCH_RING, &case(8, 4096)).is_err());
            let switches = |processes| predict(facts, &SWITCH_RING_SWITCHES, &case(processes, 0)).unwrap();
            assert_eq!((switches(2).value, switches(3).low, switches(96).high), (1.0, 1.0, 2.0));
        });
    }

    #[test]
    fn own_work_is_calls_and_stores() {
        let mut machine = testing::machine();
        machine.topology.caches = testing::caches(&[(1, 32 << 10), (2, 1 << 20)]);
        let measured = |id: &str, case: &Case| {
            let value = match id {
                id if id == FREQUENCY.id.as_str() => 4e9,
                id if id == BANDWIDTH_WRITE.id.as_str() => {
                    assert_eq!(BYTES.number_in(case), Some(512 << 10));
                    64e9
                }
                _ => 300.0,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let calls_time = |set: u64| {
            predict(&facts, &SWITCH_RING_CALLS, &Case::new().with_number(PROCESSES, 8).with_number(WORKING_SET, set))
                .unwrap()
                .value
        };
        // 256 lines, one in 0.25 ns; 1024 lines, one in a nanosecond.
        assert_eq!([0, 16 << 10, 64 << 10].map(calls_time), [300.0, 364.0, 1324.0]);
    }

    #[test]
    fn full_ring_refills_from_outer_level() {
        let mut machine = testing::machine();
        machine.topology.caches = testing::caches(&[(1, 48 << 10), (2, 2 << 20), (3, 64 << 20)]);
        let measured = |id: &str, case: &Case| {
            let value = match id {
                id if id == FREQUENCY.id.as_str() => 4e9,
                id if id == SWITCH_RING.id.as_str() => {
                    assert_eq!(WORKING_SET.number_in(case), Some(0));
                    1000.0
                }
                id if id == BANDWIDTH_WRITE.id.as_str() => match BYTES.number_in(case)? {
                    1_048_576 => 64e9,
                    _ => 16e9,
                },
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let pass_time = |processes: u64, set: u64| {
            predict(&facts, &SWITCH_RING, &Case::new().with_number(PROCESSES, processes).with_number(WORKING_SET, set))
                .unwrap()
                .value
        };
        // Both in L1; from L2 (256 ns) in place of L1 (64 ns); all in L2 as each alone; from beyond it (4096 ns) in place of L2 (1024 ns).
        assert_eq!(
            [pass_time(2, 16 << 10), pass_time(16, 16 << 10), pass_time(16, 64 << 10), pass_time(96, 64 << 10)],
            [1000.0, 1192.0, 1000.0, 4072.0]
        );
    }
}
