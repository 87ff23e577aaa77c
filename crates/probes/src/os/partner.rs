//! Two tasks that pass a token back and forth: the engine of all probes of switches and local latency.

use std::sync::Arc;

use kelvin_harness::Stop;
use kelvin_sys::clock::Clock;
use kelvin_sys::partner::{Board, PartnerTask, Task};
use kelvin_sys::shared::Shared;
use kelvin_sys::token::{Channel, Means, Side};
use kelvin_sys::usage::{Who, usage};

/// A partner that returns the token whenever it gets it, and the switch counts of both tasks.
///
/// Between two round trips the token is here and the partner sleeps in its `take`, so this task runs alone, canaries
/// included (except with a yielding partner, which stays runnable).
pub(super) struct Partner {
    channel: Arc<Channel>,
    board: Arc<Shared<Board>>,
    partner: Option<PartnerTask>,
    trips: u64,
}

/// The counters over a number of round trips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    /// Round trips.
    pub trips: u64,
    /// Voluntary context switches of this task.
    pub voluntary: u64,
    /// Involuntary context switches of this task.
    pub involuntary: u64,
    /// Calls of sched_yield by this task.
    pub yields: u64,
}

impl Counts {
    /// Context switches of this task per round trip.
    pub(crate) fn switches_per_trip(&self) -> f64 {
        (self.voluntary + self.involuntary) as f64 / self.trips.max(1) as f64
    }

    /// Fails unless each round trip switched this task out once: with fewer the token moved without a switch; with many
    /// more a pass is more than one switch. A busy machine preempts now and then, hence the tolerance above.
    pub(crate) fn proves_one_switch_each_way(&self) -> Result<(), Stop> {
        self.proves_switches(1.25)
    }

    /// Fails unless each round trip switched this task out at least once.
    pub(crate) fn proves_a_switch_each_way(&self) -> Result<(), Stop> {
        self.proves_switches(f64::INFINITY)
    }

    fn proves_switches(&self, most: f64) -> Result<(), Stop> {
        let per_trip = self.switches_per_trip();
        if (0.98..=most).contains(&per_trip) {
            return Ok(());
        }
        Err(Stop::fail(format!(
            "{} round trips had {} voluntary and {} involuntary context switches of this task: {per_trip:.2} each \
             instead of 1, so the time is not that of one switch each way",
            self.trips, self.voluntary, self.involuntary
        )))
    }

    /// The proof in words.
    pub(crate) fn describe(&self) -> String {
        let per_trip = |count: u64| count as f64 / self.trips.max(1) as f64;
        let mut text = format!(
            "{:.2} context switches of this task per round trip by getrusage ({:.2} voluntary, {:.2} involuntary)",
            self.switches_per_trip(),
            per_trip(self.voluntary),
            per_trip(self.involuntary)
        );
        if self.yields > 0 {
            text.push_str(&format!(", {:.2} calls of sched_yield", per_trip(self.yields)));
        }
        text
    }
}

impl Partner {
    /// Starts the partner on a CPU.
    pub(super) fn start(means: Means, task: Task, cpu: u32) -> Result<Self, Stop> {
        Self::start_doing(means, task, cpu, |_| ())
    }

    /// The same, a partner that reads the clock whenever it gets the token: see [`Partner::read`].
    pub(super) fn start_reading(means: Means, task: Task, cpu: u32, clock: Clock) -> Result<Self, Stop> {
        Self::start_doing(means, task, cpu, move |board| board.report(clock.stop()))
    }

    /// The ticks that a partner read when it last got the token.
    #[inline(always)]
    pub(super) fn read(&self) -> u64 {
        self.board.reported()
    }

    /// A partner that does something whenever it gets the token.
    fn start_doing(means: Means, task: Task, cpu: u32, taken: impl Fn(&Board) + Send + 'static) -> Result<Self, Stop> {
        let starting = |error| Stop::fail(format!("cannot start the partner: {error}"));
        let channel = Arc::new(Channel::new(means, task.scope()).map_err(starting)?);
        let board = Board::new().map_err(starting)?;
        let far = Arc::clone(&channel);
        let partner = PartnerTask::start(task, cpu, &board, move |board| {
            echo(&far, board, &taken).inspect_err(|error| {
                board.fail(error);
                // The other task may be waiting: it must see the failure rather than hang. If this fails too, the
                // channel is gone, which is an error there as well.
                let _ = far.pass(Side::Far);
            })
        })
        .map_err(starting)?;
        Ok(Self { channel, board, partner: Some(partner), trips: 0 })
    }

    /// Passes the token to the partner and takes it back, `count` times.
    #[inline(always)]
    pub(super) fn round_trips(&mut self, count: u64) -> Result<(), Stop> {
        for _ in 0..count {
            self.channel.pass(Side::Near)?;
            self.channel.take(Side::Near)?;
            self.board.check()?;
        }
        self.trips += count;
        Ok(())
    }

    /// Makes round trips under the counters of this task.
    pub(super) fn count(&mut self, trips: u64) -> Result<Counts, Stop> {
        let (before, yields) = (usage(Who::Thread), self.channel.yields());
        self.round_trips(trips)?;
        let after = usage(Who::Thread);
        Ok(Counts {
            trips,
            voluntary: after.voluntary_switches - before.voluntary_switches,
            involuntary: after.involuntary_switches - before.involuntary_switches,
            yields: self.channel.yields() - yields,
        })
    }

    /// Ends the partner; returns its own count of context switches per round trip.
    pub(super) fn finish(mut self) -> Result<f64, Stop> {
        self.board.stop();
        self.channel.pass(Side::Near)?;
        if let Some(partner) = self.partner.take() {
            partner.join(&self.board)?;
        }
        Ok(self.board.switches() as f64 / self.trips.max(1) as f64)
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        if self.partner.is_some() {
            // Whoever has the token, the partner gets it, sees the stop flag, and ends.
            self.board.stop();
            let _ = self.channel.pass(Side::Near);
        }
    }
}

/// The partner's loop.
#[inline(always)]
fn echo(channel: &Channel, board: &Board, taken: &impl Fn(&Board)) -> kelvin_sys::Result<()> {
    loop {
        channel.take(Side::Far)?;
        taken(board);
        if board.stopping() {
            return Ok(());
        }
        channel.pass(Side::Far)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(voluntary: u64, involuntary: u64) -> Counts {
        Counts { trips: 100, voluntary, involuntary, yields: 0 }
    }

    #[test]
    fn one_switch_per_trip_is_accepted_voluntary_or_not() {
        assert_eq!(counts(100, 0).proves_one_switch_each_way(), Ok(()));
        assert_eq!(counts(3, 99).proves_one_switch_each_way(), Ok(()));
    }

    #[test]
    fn where_more_are_allowed_fewer_are_still_refused() {
        assert_eq!(counts(100, 100).proves_a_switch_each_way(), Ok(()));
        assert!(counts(50, 0).proves_a_switch_each_way().is_err());
    }

    #[test]
    fn fewer_or_more_are_refused_with_the_figures() {
        for wrong in [counts(50, 0), counts(100, 100)] {
            let Err(Stop::Fail(reason)) = wrong.proves_one_switch_each_way() else { panic!("{wrong:?} was accepted") };
            assert!(reason.contains(&format!("{:.2} each", wrong.switches_per_trip())), "{reason}");
        }
    }

    #[test]
    fn the_partner_counts_what_this_task_counts() {
        let cpu = *kelvin_sys::cpu::allowed().unwrap().last().unwrap();
        std::thread::spawn(move || {
            kelvin_sys::cpu::pin(&[cpu]).unwrap();
            for task in [Task::Process, Task::Thread] {
                for means in [Means::Pipe, Means::Unix, Means::Eventfd, Means::Futex, Means::Condvar, Means::Yield] {
                    let mut partner = Partner::start(means, task, cpu).unwrap();
                    let counts = partner.count(500).unwrap();
                    // A socket also wakes its waiting reader when the partner consumes an earlier message.
                    let proof = match means {
                        Means::Unix => counts.proves_a_switch_each_way(),
                        _ => counts.proves_one_switch_each_way(),
                    };
                    proof.unwrap_or_else(|stop| panic!("{means:?} {task:?}: {stop:?}"));
                    let of_partner = partner.finish().unwrap();
                    assert!(of_partner >= 0.98, "{means:?} {task:?}: {of_partner}");
                }
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_partner_reads_the_clock_between_the_pass_and_the_return() {
        let cpu = kelvin_sys::cpu::allowed().unwrap()[0];
        let clock = Clock::MonotonicRaw;
        for task in [Task::Process, Task::Thread] {
            let mut partner = Partner::start_reading(Means::Pipe, task, cpu, clock).unwrap();
            for _ in 0..100 {
                let start = clock.start();
                partner.round_trips(1).unwrap();
                let (there, back) = (partner.read(), clock.stop());
                assert!(start < there && there < back, "{task:?}: {start} {there} {back}");
            }
            partner.finish().unwrap();
        }
    }
}
