//! Two tasks that pass a token back and forth: the engine of all probes of switches and local latency.

use std::sync::Arc;

use crate::reasons::{OrReason, ProbeResult, fail_if};
use kelvin_core::catalogue::os::{HandoffMechanism, HandoffTask};
use kelvin_sys::clock::Clock;
use kelvin_sys::handoff::{HandoffChannel, HandoffMethod, HandoffSide};
use kelvin_sys::partner::{PartnerKind, PartnerStatus, PartnerTask};
use kelvin_sys::usage::{UsageScope, read_usage};

pub(super) fn handoff_method(mechanism: HandoffMechanism) -> HandoffMethod {
    match mechanism {
        HandoffMechanism::Pipe => HandoffMethod::Pipe,
        HandoffMechanism::Unix => HandoffMethod::Unix,
        HandoffMechanism::Futex => HandoffMethod::Futex,
        HandoffMechanism::Eventfd => HandoffMethod::Eventfd,
        HandoffMechanism::Condvar => HandoffMethod::Condvar,
        HandoffMechanism::Yield => HandoffMethod::Yield,
    }
}

pub(super) fn partner_kind(task: HandoffTask) -> PartnerKind {
    match task {
        HandoffTask::Process => PartnerKind::Process,
        HandoffTask::Thread => PartnerKind::Thread,
    }
}

/// A partner that returns the token whenever it gets it, and the switch counts of both tasks.
///
/// Between two round trips the token is here and the partner sleeps in its `wait_for_turn`, so this task runs alone,
/// canaries included. A yielding partner is an exception: it stays runnable.
pub(crate) struct TokenPartner {
    channel: Arc<HandoffChannel>,
    partner: PartnerTask,
    trips: u64,
}

/// The counters over a number of round trips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SwitchCounts {
    /// Round trips.
    pub trips: u64,
    /// Voluntary context switches of this task.
    pub voluntary: u64,
    /// Involuntary context switches of this task.
    pub involuntary: u64,
    /// Calls of sched_yield by this task.
    pub yields: u64,
}

impl SwitchCounts {
    /// Context switches of this task per round trip.
    pub(crate) fn switches_per_trip(&self) -> f64 {
        (self.voluntary + self.involuntary) as f64 / self.trips.max(1) as f64
    }

    /// Fails unless each round trip switched this task out once: with fewer the token moved without a switch; with many
    /// more a pass is more than one switch. A busy machine preempts now and then, hence the tolerance above.
    pub(crate) fn check_one_switch_each_way(&self) -> ProbeResult {
        self.check_switches(1.25)
    }

    /// Fails unless each round trip switched this task out at least once.
    pub(crate) fn check_min_switches(&self) -> ProbeResult {
        self.check_switches(f64::INFINITY)
    }

    fn check_switches(&self, max_per_trip: f64) -> ProbeResult {
        let per_trip = self.switches_per_trip();
        let reason = format!(
            "{} round trips had {} voluntary and {} involuntary context switches of this task: {per_trip:.2} each \
             instead of 1, so the time is not that of one switch each way",
            self.trips, self.voluntary, self.involuntary
        );
        fail_if(!(0.98..=max_per_trip).contains(&per_trip), reason)
    }

    /// The proof in words.
    pub(crate) fn describe(&self) -> String {
        let per_trip = |count: u64| count as f64 / self.trips.max(1) as f64;
        let (switches, [voluntary, involuntary]) =
            (self.switches_per_trip(), [self.voluntary, self.involuntary].map(per_trip));
        let mut text = format!(
            "{switches:.2} context switches of this task per round trip by getrusage ({voluntary:.2} voluntary, \
             {involuntary:.2} involuntary)"
        );
        if self.yields > 0 {
            text.push_str(&format!(", {:.2} calls of sched_yield", per_trip(self.yields)));
        }
        text
    }
}

impl TokenPartner {
    /// Starts the partner on a CPU.
    pub(crate) fn start(mechanism: HandoffMechanism, task: HandoffTask, cpu: u32) -> ProbeResult<Self> {
        Self::start_with_action(mechanism, task, cpu, |_| ())
    }

    /// Starts a partner that reads the clock whenever it gets the token: see [`TokenPartner::last_ticks`].
    pub(super) fn start_with_clock(
        mechanism: HandoffMechanism,
        task: HandoffTask,
        cpu: u32,
        clock: Clock,
    ) -> ProbeResult<Self> {
        Self::start_with_action(mechanism, task, cpu, move |board| board.report_done(clock.stop()))
    }

    /// The ticks that a partner read when it last got the token.
    #[inline(always)]
    pub(super) fn last_ticks(&self) -> u64 {
        self.partner.done_work()
    }

    /// Starts a thread on a CPU that does batches of work for its owner.
    pub(crate) fn start_batches(cpu: u32, work: impl Fn(u64) + Send + 'static) -> ProbeResult<Self> {
        Self::start_with_action(HandoffMechanism::Futex, HandoffTask::Thread, cpu, move |board| {
            if !board.is_stopping() {
                work(board.work());
            }
        })
    }

    /// Lets the thread begin a batch of this amount.
    pub(crate) fn start_batch(&self, amount: u64) -> ProbeResult {
        self.partner.check()?;
        self.partner.set_work(amount);
        Ok(self.channel.hand_over(HandoffSide::Near)?)
    }

    /// Waits, asleep, until the batch is done.
    pub(crate) fn finish_batch(&self) -> ProbeResult {
        Ok(self.channel.wait_for_turn(HandoffSide::Near)?)
    }

    /// A partner that does something whenever it gets the token.
    fn start_with_action(
        mechanism: HandoffMechanism,
        task: HandoffTask,
        cpu: u32,
        action: impl Fn(&PartnerStatus) + Send + 'static,
    ) -> ProbeResult<Self> {
        let start_error = || format!("cannot start the partner on CPU {cpu}");
        let task = partner_kind(task);
        let channel = Arc::new(HandoffChannel::new(handoff_method(mechanism), task.scope()).or_fail(start_error())?);
        let partner_channel = Arc::clone(&channel);
        let partner = PartnerTask::start(task, cpu, move |board| {
            token_loop(&partner_channel, board, &action).inspect_err(|error| {
                board.fail(error);
                // The other task may be waiting: it must see the failure rather than hang. If this fails too, the
                // channel is gone, which is an error there as well.
                let _ = partner_channel.hand_over(HandoffSide::Far);
            })
        });
        Ok(Self { channel, partner: partner.or_fail(start_error())?, trips: 0 })
    }

    /// Passes the token to the partner and takes it back, `count` times.
    #[inline(always)]
    pub(crate) fn round_trips(&mut self, count: u64) -> ProbeResult {
        for _ in 0..count {
            self.channel.hand_over(HandoffSide::Near)?;
            self.channel.wait_for_turn(HandoffSide::Near)?;
            self.partner.check()?;
        }
        self.trips += count;
        Ok(())
    }

    /// Makes round trips under the counters of this task.
    pub(super) fn count_round_trips(&mut self, trips: u64) -> ProbeResult<SwitchCounts> {
        let (before, yields) = (read_usage(UsageScope::Thread), self.channel.yields());
        self.round_trips(trips)?;
        let usage = read_usage(UsageScope::Thread).since(before);
        let (voluntary, involuntary) = (usage.voluntary_switches, usage.involuntary_switches);
        Ok(SwitchCounts { trips, voluntary, involuntary, yields: self.channel.yields() - yields })
    }

    /// Ends the partner; returns its own count of context switches per round trip.
    pub(crate) fn finish(mut self) -> ProbeResult<f64> {
        self.partner.stop();
        self.channel.hand_over(HandoffSide::Near)?;
        self.partner.join()?;
        Ok(self.partner.switches() as f64 / self.trips.max(1) as f64)
    }
}

impl Drop for TokenPartner {
    fn drop(&mut self) {
        if self.partner.is_running() {
            // Whoever has the token, the partner gets it, sees the stop flag, and ends.
            self.partner.stop();
            let _ = self.channel.hand_over(HandoffSide::Near);
        }
    }
}

/// The partner's loop.
#[inline(always)]
fn token_loop(
    channel: &HandoffChannel,
    board: &PartnerStatus,
    action: &impl Fn(&PartnerStatus),
) -> kelvin_sys::Result<()> {
    loop {
        channel.wait_for_turn(HandoffSide::Far)?;
        action(board);
        if board.is_stopping() {
            return Ok(());
        }
        channel.hand_over(HandoffSide::Far)?;
    }
}

#[cfg(test)]
mod tests {
    use kelvin_harness::ProbeError;

    use super::*;

    fn counts(voluntary: u64, involuntary: u64) -> SwitchCounts {
        SwitchCounts { trips: 100, voluntary, involuntary, yields: 0 }
    }

    #[test]
    fn one_switch_per_trip_is_accepted() {
        assert_eq!(counts(100, 0).check_one_switch_each_way(), Ok(()));
        assert_eq!(counts(3, 99).check_one_switch_each_way(), Ok(()));
    }

    #[test]
    fn too_few_switches_are_always_refused() {
        assert_eq!(counts(100, 100).check_min_switches(), Ok(()));
        assert!(counts(50, 0).check_min_switches().is_err());
    }

    #[test]
    fn wrong_switch_counts_are_reported() {
        for wrong_counts in [counts(50, 0), counts(100, 100)] {
            let Err(ProbeError::Fail(reason)) = wrong_counts.check_one_switch_each_way() else {
                panic!("{wrong_counts:?} was accepted")
            };
            assert!(reason.contains(&format!("{:.2} each", wrong_counts.switches_per_trip())), "{reason}");
        }
    }

    #[test]
    fn both_tasks_count_equal_switches() {
        let cpu = *kelvin_sys::cpu::affinity().unwrap().last().unwrap();
        std::thread::spawn(move || {
            kelvin_sys::cpu::pin(&[cpu]).unwrap();
            for &task in HandoffTask::ALL {
                for &mechanism in HandoffMechanism::ALL {
                    let mut partner = TokenPartner::start(mechanism, task, cpu).unwrap();
                    let counts = partner.count_round_trips(500).unwrap();
                    // A socket also wakes its waiting reader when the partner consumes an earlier message.
                    let proof = match mechanism {
                        HandoffMechanism::Unix => counts.check_min_switches(),
                        _ => counts.check_one_switch_each_way(),
                    };
                    proof.unwrap_or_else(|error| panic!("{mechanism:?} {task:?}: {error:?}"));
                    let partner_switches = partner.finish().unwrap();
                    assert!(partner_switches >= 0.98, "{mechanism:?} {task:?}: {partner_switches}");
                }
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn partner_clock_lies_within_round_trip() {
        let cpu = kelvin_sys::cpu::affinity().unwrap()[0];
        let clock = Clock::MonotonicRaw;
        for &task in HandoffTask::ALL {
            let mut partner = TokenPartner::start_with_clock(HandoffMechanism::Pipe, task, cpu, clock).unwrap();
            for _ in 0..100 {
                let start = clock.start();
                partner.round_trips(1).unwrap();
                let (partner_time, return_time) = (partner.last_ticks(), clock.stop());
                assert!(
                    start < partner_time && partner_time < return_time,
                    "{task:?}: {start} {partner_time} {return_time}"
                );
            }
            partner.finish().unwrap();
        }
    }
}
