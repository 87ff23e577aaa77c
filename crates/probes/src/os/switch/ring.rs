//! Switching among many processes that each have a working set: the cost of a switch with cache refills.
//!
//! A curve over the number of processes and the size of their working sets. It must not be used as the cost of one
//! refill: what stays in the caches depends on all processes together.

use std::hint::black_box;
use std::sync::Arc;

use kelvin_catalogue::os::{
    PROCESSES, SWITCH_PROCESS_PIPE, SWITCH_RING, SWITCH_RING_OWN, SWITCH_RING_SWITCHES, WORKING_SET,
};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Axis, Basis, Case, Machine, Metric, NoPrediction, Prediction};
use kelvin_sys::memory::{Arena, LINE, Pages};
use kelvin_sys::partner::{Board, PartnerTask, Task};
use kelvin_sys::shared::Shared;
use kelvin_sys::token::Pipe;
use kelvin_sys::usage::{Who, usage};

use crate::predict::Predicting;

pub(in crate::os) static PROBE: Probe = Probe {
    id: SWITCH_RING.id.as_str(),
    summary: "Switching among 2 to 96 processes, each with a working set of up to 64 KiB",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Processes on one CPU form a ring of pipes and pass one byte around. On receipt each increments a word in \
              every 64-byte line of its own working set (a private, touched mapping of base pages), and passes the \
              byte on. Whole laps are timed in batches, and in each batch as many writes, reads and passes over a \
              working set are timed in one task with warm caches. The headline is the time of a lap divided by the \
              processes, less the latter: a switch with its cache refills, as in lmbench's lat_ctx. The words are \
              checked: they must have been incremented as often as the byte came by. The context switches of all \
              processes are counted by getrusage, as a metric: at least one per pass, or the round fails; and up to \
              two, because a task preempted while it wakes the next one must run again just to wait for the byte.",
        prediction: "Without a working set, one switch as measured by os.switch.process.pipe in this run. With one, \
                     none: the cache refill would have to be added, from latencies of the cache levels that are not \
                     measured in the run.",
        not_for: "The cost of a cache miss; a scheduler's behaviour with many runnable tasks: only one task of the \
                  ring is runnable at a time.",
        pitfalls: &[
            "Taking a pass for one switch: with more than two processes, wake-up preemption makes it up to two (divide \
             by os.switch.ring.switches). With two processes the preempted task is the next to run anyway.",
            "The subtracted work must be timed with warm caches: else the refill is subtracted too.",
            "Working sets that share physical pages (never written after fork, or the zero page) are one set: here \
             every process writes to its own.",
            "With physically indexed caches the figure depends on a process's physical pages; every round has new \
             ones.",
        ],
        sources: &[
            "McVoy and Staelin, lmbench: Portable Tools for Performance Analysis, USENIX 1996 (lat_ctx -s)",
            "Li, Ding and Shen, Quantifying the Cost of Context Switch, ExpCS 2007",
        ],
    },
    metrics: &[&SWITCH_RING, &SWITCH_RING_OWN, &SWITCH_RING_SWITCHES],
    inputs: &[SWITCH_PROCESS_PIPE.id.as_str()],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let (processes, sets): (&[u64], &[u64]) = match effort {
        Effort::Quick => (&[2, 16], &[0, 16 << 10]),
        Effort::Default => (&[2, 8, 16, 32, 96], &[0, 16 << 10, 64 << 10]),
        Effort::Thorough => (&[2, 4, 8, 16, 32, 64, 96], &[0, 4 << 10, 16 << 10, 64 << 10]),
    };
    let of = |&set: &u64| processes.iter().map(move |&n| Case::new().with(PROCESSES, n).with(WORKING_SET, set));
    sets.iter().flat_map(of).collect()
}

/// The working set of a process of the ring.
struct WorkingSet(Option<Arena>);

impl WorkingSet {
    fn new(bytes: usize) -> kelvin_sys::Result<Self> {
        let arena = (bytes > 0).then(|| Arena::map(bytes, Pages::Base)).transpose()?;
        let mut set = Self(arena);
        set.work();
        Ok(set)
    }

    /// Adds one to a word in every line.
    #[inline(always)]
    fn work(&mut self) {
        if let Some(arena) = &mut self.0 {
            for line in black_box(arena.as_mut_slice()).chunks_exact_mut(LINE) {
                if let Some(word) = line.first_chunk_mut() {
                    *word = u64::from_le_bytes(*word).wrapping_add(1).to_le_bytes();
                }
            }
        }
    }

    /// Whether every word holds this count.
    fn holds(&self, count: u64) -> bool {
        self.0.as_ref().is_none_or(|arena| {
            arena.as_slice().chunks_exact(LINE).all(|line| line[..size_of::<u64>()] == count.to_le_bytes())
        })
    }
}

/// A ring of processes, this one being the first.
struct Ring {
    /// The pipe at index `i` leads from process `i` to the next.
    pipes: Arc<Vec<Pipe>>,
    members: Vec<PartnerTask>,
    board: Arc<Shared<Board>>,
    set: WorkingSet,
    laps: u64,
    /// Context switches of this process before the first lap.
    before: u64,
}

impl Ring {
    fn new(processes: usize, set: usize, cpu: u32) -> Result<Self, Stop> {
        let starting = |error| Stop::fail(format!("cannot build a ring of {processes} processes: {error}"));
        let pipes: kelvin_sys::Result<Vec<Pipe>> = (0..processes).map(|_| Pipe::new()).collect();
        let pipes = Arc::new(pipes.map_err(starting)?);
        let board = Board::new().map_err(starting)?;
        let mut ring = Self {
            pipes,
            members: Vec::new(),
            board,
            set: WorkingSet::new(set).map_err(starting)?,
            laps: 0,
            before: 0,
        };
        for index in 1..processes {
            let pipes = Arc::clone(&ring.pipes);
            let member = PartnerTask::start(Task::Process, cpu, &ring.board, move |board| {
                // A process that fails records it on the board and passes the byte on, so that the lap ends and is
                // checked.
                member(&pipes[index - 1], &pipes[index], set, board).inspect_err(|error| {
                    board.fail(error);
                    let _ = pipes[index].put();
                })
            });
            ring.members.push(member.map_err(starting)?);
        }
        ring.before = ring.own_switches();
        Ok(ring)
    }

    /// Sends the byte around.
    #[inline(always)]
    fn laps(&mut self, count: u64) -> Result<(), Stop> {
        let (out, back) = (&self.pipes[0], &self.pipes[self.pipes.len() - 1]);
        for _ in 0..count {
            out.put()?;
            back.get()?;
            self.set.work();
            self.board.check()?;
        }
        self.laps += count;
        Ok(())
    }

    /// Ends the processes and checks their work and this one's; returns context switches per pass.
    fn finish(mut self) -> Result<f64, Stop> {
        self.board.stop();
        self.laps(1)?;
        for member in std::mem::take(&mut self.members) {
            member.join(&self.board)?;
        }
        let (hand_overs, switches) = (self.laps * self.pipes.len() as u64, self.board.switches() + self.own_switches());
        let each = switches as f64 / hand_overs as f64;
        if each < 0.98 {
            return Err(Stop::fail(format!(
                "the byte was passed {hand_overs} times but the processes had only {switches} context switches: it \
                 moved without switches"
            )));
        }
        Ok(each)
    }

    /// Context switches of this process since the ring was built.
    fn own_switches(&self) -> u64 {
        let now = usage(Who::Thread);
        now.voluntary_switches + now.involuntary_switches - self.before
    }
}

/// The loop of a process of the ring.
fn member(from: &Pipe, to: &Pipe, set: usize, board: &Board) -> kelvin_sys::Result<()> {
    let mut set = WorkingSet::new(set)?;
    let mut laps = 0;
    loop {
        from.get()?;
        set.work();
        laps += 1;
        let last = board.stopping();
        if last && !set.holds(laps + 1) {
            return Err(kelvin_sys::Error::other("a working set was not incremented as often as the byte came by"));
        }
        to.put()?;
        if last {
            return Ok(());
        }
    }
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let number = |axis: Axis| axis.of(case).ok_or_else(|| Stop::fail(format!("the case needs a number {}", axis.name)));
    let (processes, set) = (number(PROCESSES)?.max(2), number(WORKING_SET)?);
    let mut ring = Ring::new(processes as usize, set as usize, bench.cpu())?;
    let mut alone = WorkingSet::new(set as usize)?;
    let pipe = Pipe::new()?;
    ring.laps(2)?;
    bench.time_parts([&SWITCH_RING, &SWITCH_RING_OWN], |clock, passes| {
        // Only whole laps can be timed, scaled to the requested passes.
        let laps = passes.div_ceil(processes);
        let start = clock.start();
        ring.laps(laps)?;
        let ring = clock.stop().wrapping_sub(start) as f64 * passes as f64 / (laps * processes) as f64;
        let start = clock.start();
        for _ in 0..passes {
            pipe.put()?;
            pipe.get()?;
            alone.work();
        }
        let own = clock.stop().wrapping_sub(start) as f64;
        Ok([ring - own, own])
    })?;
    let switches = ring.finish()?;
    bench.record(&SWITCH_RING_SWITCHES, vec![switches]);
    Ok(())
}

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if *metric == SWITCH_RING_SWITCHES {
        return Err(NoPrediction::because("it is between one and two, depending on preemption"));
    }
    if *metric == SWITCH_RING_OWN {
        return Err(super::predict::calls_alone());
    }
    if WORKING_SET.of(case) != Some(0) {
        return Err(NoPrediction::because(
            "the cache refill would have to be added, and the latencies of the cache levels are not measured in this \
             run",
        ));
    }
    let switch = facts.measured(&SWITCH_PROCESS_PIPE, &Case::new())?;
    let value = switch.value;
    // With more than two, wake-up preemption makes a pass up to two switches.
    Ok(Predicting::between(Basis::Derived, value, value / 1.3, 2.0 * value)
        .formula("os.switch.process.pipe: without a working set there is nothing to refill")
        .input(switch)
        .derived_as(format!(
            "{value:.0} ns with two processes; up to twice that if a task is preempted while it wakes the next one"
        )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn a_set_counts_the_passes_in_every_line() {
        for bytes in [0, 64, 4096, 64 << 10] {
            let mut set = WorkingSet::new(bytes).unwrap();
            assert!(set.holds(1));
            for _ in 0..300 {
                set.work();
            }
            assert!(set.holds(301));
            assert_eq!(set.holds(300), bytes == 0);
        }
    }

    #[test]
    fn a_ring_of_processes_does_its_laps_and_ends() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        std::thread::spawn(move || {
            kelvin_sys::cpu::pin(&[cpu]).unwrap();
            let mut ring = Ring::new(5, 4096, cpu).unwrap();
            ring.laps(30).unwrap();
            assert!(ring.set.holds(31));
            assert!((0.98..3.0).contains(&ring.finish().unwrap()));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_empty_ring_is_predicted_from_pipes_and_a_full_one_is_not() {
        let case = |set| Case::new().with(PROCESSES, 8).with(WORKING_SET, set);
        facts_about(&[(SWITCH_PROCESS_PIPE.id.as_str(), Some(1000.0))], |facts| {
            let prediction = predict(facts, &SWITCH_RING, &case(0)).unwrap();
            assert_eq!((prediction.value, prediction.high), (1000.0, 2000.0));
            assert!(predict(facts, &SWITCH_RING, &case(4096)).is_err());
        });
    }
}
