//! The result of a load from what its threads counted.

use jiff::Timestamp;
use kelvin_core::load::{
    GeneratorStats, GeneratorThread, KindResult, LoadResult, OfferedLoad, SecondResult, StageResult,
};

use crate::load::engine::ThreadResult;
use crate::load::generator_usage;
use crate::load::measured_load::{LatencyHistograms, MeasuredLoad, MergeData, Schedule};
use crate::load::request_mix::RequestKind;
use crate::load::request_stats::{GroupStats, NANOSECONDS_PER_SECOND, RequestStats, latency_summary};
use crate::load::schedule::TimeDistribution;
use crate::load::setup::{Demand, LoadSetup};
use crate::load::stages::mean_rate;
use crate::load::start_time::{LoadStart, StartTime};

/// The result of a load whose threads, at least one, brought these.
pub(crate) fn merged_result(
    setup: &LoadSetup,
    start: LoadStart,
    threads: Vec<ThreadResult>,
    series: Vec<SecondResult>,
) -> MeasuredLoad {
    let (stats, usages): (Vec<RequestStats>, Vec<GeneratorThread>) =
        threads.into_iter().map(|thread| (thread.stats, thread.usage)).unzip();
    let stats = stats.into_iter().reduce(|mut merged, other| {
        merged.merge(other);
        merged
    });
    let demand = setup.own_demand();
    let counted = CountedLoad { demand: &demand, stats: stats.expect("a load has a thread") };
    let result = LoadResult { target: setup.target_name(), series, ..counted.result(usages) };
    let mut groups = counted.stats.groups.iter().map(GroupStats::figures);
    let kinds = setup.kinds.iter().zip(&mut groups);
    let kinds = kinds.map(|(RequestKind { name, weight, .. }, figures)| KindResult {
        name: name.clone(),
        weight: *weight,
        figures,
    });
    let kinds = kinds.collect();
    let stages = demand.stages().into_iter().zip(groups);
    let stages =
        stages.map(|((level, duration), figures)| StageResult { level, seconds: duration.as_secs_f64(), figures });
    let result = LoadResult { kinds, stages: stages.collect(), ..result };
    let RequestStats { response, service, lateness, generator_delay, .. } = counted.stats;
    let scheduled_start = match setup.start {
        StartTime::Now => None,
        StartTime::At(time) => Some(timestamp(time)),
    };
    let merge_data = MergeData {
        start: timestamp(start.realtime + setup.warm_up.as_nanos() as u64),
        scheduled_start,
        schedule: Schedule::new(setup),
        histograms: LatencyHistograms { response, service, late: lateness, own_delay: generator_delay },
    };
    MeasuredLoad { result, merge_data }
}

/// A time of CLOCK_REALTIME in nanoseconds.
fn timestamp(nanoseconds: u64) -> Timestamp {
    // A u64 ends in the year 2554, and timestamps in 9999.
    Timestamp::from_nanosecond(i128::from(nanoseconds)).expect("a time of this clock")
}

/// What was asked for, and what came of it.
struct CountedLoad<'d> {
    demand: &'d Demand,
    stats: RequestStats,
}

impl CountedLoad<'_> {
    fn result(&self, threads: Vec<GeneratorThread>) -> LoadResult {
        let stats = &self.stats;
        let figures = stats.summary();
        // The mean time of a user from one request to the next; an open loop hides nothing.
        let mean_cycle = match *self.demand {
            Demand::Users { users, .. } if stats.requests > 0 => {
                let user_time = f64::from(users) * stats.seconds() * NANOSECONDS_PER_SECOND as f64;
                Some((user_time / stats.requests as f64) as u64)
            }
            _ => None,
        };
        let delays = GeneratorStats {
            late: latency_summary(&stats.lateness),
            read_delay: stats.read_delay.mean(),
            send_delay: stats.departure_delay.mean(),
            own_delay: latency_summary(&stats.generator_delay),
            spurious_wakeups: stats.futile_wakeups,
            ..GeneratorStats::default()
        };
        let lost_share = self.lost_share(delays.late.mean, figures.response.mean);
        LoadResult {
            offered: self.offered(),
            interrupted: kelvin_sys::stop_signals::stop_signal().map(str::to_owned),
            corrected: mean_cycle.map(|cycle| latency_summary(&stats.response.corrected_for_omission(cycle))),
            unanswered: stats.unanswered(),
            answer_seconds: figures.answer_seconds + self.scheduled_seconds() - stats.seconds(),
            generator: generator_usage::report(threads, delays, figures.response, lost_share),
            ..figures
        }
    }

    /// Which share of the requests that were asked for its delays left out. Users ask again the later for them, and of answers that wait
    /// to be read: so much longer is a cycle of response and thought. In an open loop a generator that keeps up is as late in the end
    /// as at the beginning, and one that falls behind twice as late in the end as on average: so much longer it takes for the same requests.
    fn lost_share(&self, mean_lateness: f64, response: f64) -> f64 {
        let (delay, time) = match self.demand {
            Demand::Users { think, .. } | Demand::UserStages { think, .. } => {
                (mean_lateness + self.stats.queue_delay.mean().unwrap_or(0.0), response + think.mean)
            }
            _ => (2.0 * mean_lateness, self.stats.seconds() * NANOSECONDS_PER_SECOND as f64 + 2.0 * mean_lateness),
        };
        generator_usage::delay_share(delay, time).min(1.0)
    }

    /// What was asked for, and at what rate requests became due.
    fn offered(&self) -> OfferedLoad {
        if let Demand::Users { think, .. } | Demand::UserStages { think, .. } = *self.demand {
            return OfferedLoad::Users { users: self.demand.max_connections(), think: think.mean };
        }
        let due_rate = self.due_count() as f64 / self.scheduled_seconds().max(f64::MIN_POSITIVE);
        let rate = match self.demand {
            Demand::Rate { rate, .. } => *rate,
            Demand::RateStages { stages, .. } => mean_rate(stages),
            _ => due_rate,
        };
        OfferedLoad::Rate { rate, due: due_rate, delayed: self.stats.delayed }
    }

    /// Requests that became due in the measured time, sent or not.
    fn due_count(&self) -> u64 {
        self.stats.due + self.stats.unsent
    }

    /// Seconds that the schedule has for the requests that became due in the measured time. Of an even rate
    /// that is a whole number of the times between two: the measured time may end within one, and has its request all the same.
    fn scheduled_seconds(&self) -> f64 {
        match *self.demand {
            Demand::Rate { rate, arrivals: TimeDistribution::Constant, .. } if self.due_count() > 0 => {
                self.due_count() as f64 / rate
            }
            _ => self.stats.seconds(),
        }
    }
}
