//! `kelvin-cluster net`: all pairs of ranks measure with each other, in rounds and then all at once.

mod mpi_pair;
mod worker;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kelvin_cluster::kelvin_program::KelvinProgram;
use kelvin_cluster::net::analysis::analyse;
use kelvin_cluster::net::event::{NetEvent, NetPlan};
use kelvin_cluster::net::report::write_text;
use kelvin_cluster::net::results::NetResults;
use kelvin_cluster::net::schedule::{Pair, bisection, tournament};
use kelvin_cluster::net::task::{NetOutcome, NetTask, PairFigures, PairPlan, PairTask};
use kelvin_cluster::placement::{PlacementError, check_networks};
use kelvin_cluster::protocol::Greeting;
use kelvin_cluster::results::Results;
use kelvin_core::cluster::{Subject, Transport};

use self::worker::NetWorker;
use crate::cli::{JobArgs, NetArgs};
use crate::coordinator::{Coordinator, Report, STEP_TIMEOUT, Subcommand};
use crate::monitor::StepLimit;
use crate::notice;

/// How often a pair is measured again if other programs took its CPUs.
const MAX_REPEATS: usize = 2;
/// The part of a pair's time for round trips. The rest is for both directions.
const ROUND_TRIP_SHARE: f64 = 0.2;
/// Bytes of each rank for each other in an exchange of all with all.
const ALL_TO_ALL_BYTES: usize = 64 << 10;
/// Exchanges that show how long one takes.
const FIRST_EXCHANGES: usize = 2;
/// Of what a sender sent over MPI at least this part must have left by a network interface, if both ends are on one kernel: without it the
/// implementation used shared memory.
const MIN_INTERFACE_SHARE: f64 = 0.5;

impl Subcommand for NetArgs {
    type Measured = NetResults;
    type Worker<'w> = NetWorker<'w>;
    /// A pair.
    const MIN_RANKS: usize = 2;

    fn job(&self) -> &JobArgs {
        &self.job
    }

    fn plan(&self, _: usize) -> Result<NetPlan, String> {
        let pair_seconds = self.pair_time.as_secs_f64();
        let plan = |&transport: &Transport| PairPlan {
            transport,
            round_trip_seconds: ROUND_TRIP_SHARE * pair_seconds,
            rate_seconds: (1.0 - ROUND_TRIP_SHARE) / 2.0 * pair_seconds,
            message_bytes: self.message_size,
        };
        Ok(NetPlan { plans: self.transport.transports().iter().map(plan).collect(), tolerance: self.tolerance })
    }

    fn check_placement(greetings: &[Greeting]) -> Result<(), PlacementError> {
        check_networks(greetings)
    }

    fn measure(&self, coordinator: &mut Coordinator<'_, Self>) {
        let listening = coordinator.run_on_all(&NetTask::Listen, StepLimit::Total(STEP_TIMEOUT));
        let addresses = listening.into_iter().filter_map(|outcome| match outcome {
            NetOutcome::Listening(address) => Some(address),
            _ => None,
        });
        let mut measurement = NetMeasurement { addresses: addresses.collect(), coordinator };
        measurement.measure_passes(self);
        measurement.measure_together(self);
        let analysis = analyse(coordinator.results());
        coordinator.record(NetEvent::Analysis { analysis });
    }

    fn report(results: &Results<NetResults>, _: &KelvinProgram) -> Result<Report, String> {
        let mut text = String::new();
        write_text(&mut text, results, &analyse(results)).expect("a string takes all that is written");
        Ok(Report { text, is_success: true })
    }
}

/// Rank 0 as it has pairs measure.
struct NetMeasurement<'c, 'w> {
    coordinator: &'c mut Coordinator<'w, NetArgs>,
    /// Where each rank accepts connections for measuring.
    addresses: Vec<SocketAddr>,
}

impl NetMeasurement<'_, '_> {
    fn plans(&self) -> Vec<PairPlan> {
        self.coordinator.results().measured.plan.plans.clone()
    }

    /// All pairs, pass by pass; then those again that seem slow, so that a disturbance is no slow link.
    fn measure_passes(&mut self, args: &NetArgs) {
        let passes = args.passes as usize;
        for pass in 1..=passes {
            for plan in self.plans() {
                let rounds = tournament(self.coordinator.ranks());
                notice(format_args!("pass {pass} of {passes}, {}: {} rounds", plan.transport.label(), rounds.len()));
                rounds.iter().for_each(|round| self.measure_round(round, &plan, pass));
            }
        }
        let suspects = self.suspects();
        for plan in self.plans() {
            let pairs: Vec<Pair> =
                suspects.iter().filter(|(transport, _)| *transport == plan.transport).map(|&(_, pair)| pair).collect();
            if !pairs.is_empty() {
                notice(format_args!(
                    "{}: {} pairs that seem slow are measured again",
                    plan.transport.label(),
                    pairs.len()
                ));
            }
            for _ in 0..passes {
                // One after the other: no two of them share a host then.
                pairs.iter().for_each(|&pair| self.measure_round(&[pair], &plan, 0));
            }
        }
    }

    /// The pairs that would be named now.
    fn suspects(&self) -> Vec<(Transport, Pair)> {
        let findings = analyse(self.coordinator.results()).findings;
        let links = findings.iter().filter_map(|finding| match finding.subject {
            Subject::Link { from, to } => Some((finding.transport, [from.min(to), from.max(to)])),
            _ => None,
        });
        let mut suspects: Vec<_> = links.collect();
        suspects.sort_unstable();
        suspects.dedup();
        suspects
    }

    /// Measures a round. Pairs that were disturbed are measured again.
    fn measure_round(&mut self, round: &[Pair], plan: &PairPlan, pass: usize) {
        let mut pairs = round.to_vec();
        for attempt in 0..=MAX_REPEATS {
            let mut disturbed = Vec::new();
            for part in self.coordinator.kernels().divide(&pairs) {
                for (pair, result) in self.run_pairs(&part, plan) {
                    let event = match result {
                        Ok(figures) => {
                            self.refuse_shared_memory(plan.transport, pair, &figures);
                            if figures.is_disturbed() {
                                disturbed.push(pair);
                            }
                            // One of disturbed attempts is enough, and says that there is no better one.
                            if figures.is_disturbed() && attempt < MAX_REPEATS {
                                continue;
                            }
                            NetEvent::Pair { transport: plan.transport, pass, pair, figures }
                        }
                        Err(reason) => NetEvent::PairFailed { transport: plan.transport, pair, reason },
                    };
                    self.coordinator.record(event);
                }
            }
            pairs = disturbed;
        }
    }

    /// Has these pairs, which are disjoint, measure at the same time.
    fn run_pairs(&mut self, pairs: &[Pair], plan: &PairPlan) -> BTreeMap<Pair, Result<PairFigures, String>> {
        let planned = Duration::from_secs_f64(2.0 * (plan.round_trip_seconds + 2.0 * plan.rate_seconds));
        let cpus = self.coordinator.kernels().assign_cpus(pairs);
        let task = |pair: Pair, side: usize| {
            NetTask::MeasurePair(PairTask {
                peer: pair[1 - side],
                peer_address: self.addresses[pair[1 - side]],
                is_initiator: side == 0,
                cpu: cpus.get(&pair[side]).copied(),
                plan: *plan,
            })
        };
        let tasks = pairs.iter().flat_map(|&pair| [0, 1].map(|side| (pair[side], task(pair, side)))).collect();
        let mut outcomes = self.coordinator.run_step(&tasks, StepLimit::Total(planned + STEP_TIMEOUT));
        let mut result = |&pair: &Pair| {
            let ends = pair.map(|rank| outcomes.remove(&rank).unwrap_or_else(|| Err("no outcome".into())));
            (pair, pair_result(ends))
        };
        pairs.iter().map(&mut result).collect()
    }

    fn refuse_shared_memory(&self, transport: Transport, pair: Pair, figures: &PairFigures) {
        let [first, second] = pair;
        let share_kernel = self.coordinator.kernels().of_rank[first] == self.coordinator.kernels().of_rank[second];
        let needed = MIN_INTERFACE_SHARE * figures.sent_bytes as f64;
        if transport == Transport::Mpi && share_kernel && (figures.interface_bytes as f64) < needed {
            self.coordinator.job().abort(
                None,
                &format!(
                    "MPI moved {} bytes between ranks {first} and {second}, which share a kernel, and no network interface sent them: \
                     it used shared memory. Have it use TCP: `--mca pml ob1 --mca btl tcp,self` (Open MPI), or measure with \
                     --transport tcp",
                    figures.sent_bytes
                ),
            );
        }
    }

    /// All pairs across the middle at once, and all ranks with all.
    fn measure_together(&mut self, args: &NetArgs) {
        if args.together_time.is_zero() {
            return;
        }
        if self.coordinator.kernels().is_overloaded() {
            notice(
                "all at once: more ranks of one kernel send than it has CPUs, so that these rates are those of its CPUs",
            );
        }
        for plan in self.plans() {
            let plan = PairPlan { round_trip_seconds: 0.0, rate_seconds: args.together_time.as_secs_f64(), ..plan };
            notice(format_args!("{}: all pairs across the middle at once", plan.transport.label()));
            for (pair, result) in self.run_pairs(&bisection(self.coordinator.ranks()), &plan) {
                let event = match result {
                    Ok(figures) => NetEvent::Bisection { transport: plan.transport, pair, figures },
                    Err(reason) => NetEvent::PairFailed { transport: plan.transport, pair, reason },
                };
                self.coordinator.record(event);
            }
            if plan.transport == Transport::Mpi {
                notice("MPI: all with all at once");
                self.measure_all_to_all(args.together_time.as_secs_f64());
            }
        }
    }

    fn measure_all_to_all(&mut self, seconds: f64) {
        let first = self.run_all_to_all(FIRST_EXCHANGES, seconds);
        let count = (seconds / first * FIRST_EXCHANGES as f64).ceil().clamp(1.0, 1e6) as usize;
        let seconds = self.run_all_to_all(count, seconds);
        self.coordinator.record(NetEvent::AllToAll { bytes: ALL_TO_ALL_BYTES, count, seconds });
    }

    /// The time of the slowest rank, in seconds.
    fn run_all_to_all(&mut self, count: usize, seconds: f64) -> f64 {
        let limit = StepLimit::Total(Duration::from_secs_f64(4.0 * seconds) + 3 * STEP_TIMEOUT);
        let outcomes = self.coordinator.run_on_all(&NetTask::AllToAll { bytes: ALL_TO_ALL_BYTES, count }, limit);
        let seconds = outcomes.iter().map(|outcome| match outcome {
            NetOutcome::AllToAll(seconds) => *seconds,
            _ => 0.0,
        });
        seconds.fold(0.0, f64::max)
    }
}

/// What a pair measured, by what both of its ends say.
fn pair_result(ends: [Result<NetOutcome, String>; 2]) -> Result<PairFigures, String> {
    let mut pair_figures = None;
    let mut longest_wait = 0.0_f64;
    let mut reasons = Vec::new();
    for end in ends {
        match end {
            Ok(NetOutcome::Pair(figures)) => {
                longest_wait = longest_wait.max(figures.cpu_wait);
                pair_figures = Some(figures);
            }
            Ok(NetOutcome::PairDone { cpu_wait }) => longest_wait = longest_wait.max(cpu_wait),
            Ok(other) => reasons.push(format!("gave another answer: {other:?}")),
            // Either end may know why there are no figures: both are told.
            Err(reason) => reasons.push(reason),
        }
    }
    match pair_figures {
        Some(figures) if reasons.is_empty() => Ok(PairFigures { cpu_wait: longest_wait, ..figures }),
        None if reasons.is_empty() => Err("no figures".into()),
        _ => Err(reasons.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_a_pair_is_that_of_both_ends() {
        let figures = |cpu_wait| PairFigures {
            round_trip: None,
            bytes_per_second: [1e8, 2e8],
            sent_bytes: 1,
            interface_bytes: 1,
            cpu_wait,
        };
        let measured = || Ok(NetOutcome::Pair(figures(0.1)));
        let done = |cpu_wait| Ok(NetOutcome::PairDone { cpu_wait });
        assert_eq!(pair_result([measured(), done(0.3)]), Ok(figures(0.3)));
        assert_eq!(pair_result([measured(), done(0.0)]), Ok(figures(0.1)));
        assert_eq!(pair_result([measured(), Err("it broke".into())]), Err("it broke".into()));
        assert_eq!(pair_result([Err("refused".into()), Err("reset".into())]), Err("refused; reset".into()));
        assert_eq!(pair_result([done(0.0), done(0.0)]), Err("no figures".into()));
    }
}
