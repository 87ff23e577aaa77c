//! What stands out where several CPUs ask the kernel for the same at once, or move memory.

use kelvin_core::catalogue::mem::{MemoryNodes, SCALING_READ};
use kelvin_core::catalogue::os::{KernelService, SCALING_EFFICIENCY, TaskKind, WORKING_CPUS};

use super::*;

/// Times the rate up to which more CPUs are none: a tenth more is not worth them.
const MAX_FURTHER_GAIN: f64 = 1.1;
/// Times the rate of null calls from which on more CPUs are there: these share nothing, so that less is due to second threads of cores,
/// a quota or other work.
const MIN_CPU_GAIN: f64 = 1.5;

/// Which service more threads of one process do no more of, though the CPUs for them are there.
pub(super) fn service_scaling(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let null_calls = ScalingCurve::of_threads(context, KernelService::NullCall);
    let services = KernelService::ALL.iter().filter(|&&service| service != KernelService::NullCall);
    let curves: Vec<ScalingCurve<'_>> = services.map(|&service| ScalingCurve::of_threads(context, service)).collect();
    // Each service is comparisons at each count but the last.
    let comparisons = curves.iter().map(|curve| curve.points.len().saturating_sub(1)).sum();
    let stops = curves.iter().filter_map(|curve| curve.stop(&null_calls, comparisons));
    let worst = stops.max_by(|a, b| a.loss.total_cmp(&b.loss))?;
    let ScalingStop { service, stop_cpus, max_cpus, loss, compared } = worst;
    let subject = match service {
        KernelService::NullCall => "A null call",
        KernelService::ForkExitWait => "Forking",
        KernelService::MmapMunmap => "Mapping memory",
        KernelService::PageFault => "Touching new memory",
        KernelService::CreateUnlink => "Creating files",
        KernelService::FutexWake => "Waking futexes",
        KernelService::ConnectAccept => "Accepting connections",
    };
    let processes = process_gain(context, service, max_cpus).filter(|gain| gain.low > MIN_CPU_GAIN * stop_cpus as f64);
    let processes = processes.map_or_else(String::new, |gain| {
        format!("; {max_cpus} processes reach {} times the rate of one", times_text(gain.value))
    });
    let text =
        format!("{subject} stops scaling at {stop_cpus} of {max_cpus} CPUs in threads of one process{processes}.");
    Some(compared.into_answer(Consequence::Avoidable, StandOutQuestion::ServiceScaling, text).with_factor(loss))
}

/// The efficiency of a service in threads, by the number of CPUs at work.
struct ScalingCurve<'a> {
    service: KernelService,
    /// In ascending order of the CPUs.
    points: Vec<(u64, &'a RoundHeadlines<'a>)>,
}

/// Where a service stops.
struct ScalingStop {
    service: KernelService,
    /// CPUs from which on more are none.
    stop_cpus: u64,
    /// All that were tried.
    max_cpus: u64,
    /// How many times as much null calls gain from there to all.
    loss: f64,
    /// The efficiency with all of them over that there.
    compared: FigureRatio,
}

impl<'a> ScalingCurve<'a> {
    fn of_threads(context: &'a StandOutContext<'_>, service: KernelService) -> Self {
        let selector = select(&SCALING_EFFICIENCY).with_word(service.point()).with_word(TaskKind::Threads.point());
        Self { service, points: curve_points(context, &selector) }
    }

    /// The efficiency with the second number of CPUs over that with the first, by an interval that holds jointly with those of this many comparisons.
    fn compare(&self, from: u64, to: u64, jointly: usize) -> Option<FigureRatio> {
        let rounds = |cpus: u64| self.points.iter().find(|point| point.0 == cpus).map(|point| point.1);
        FigureRatio::from_rounds_jointly(rounds(from)?, rounds(to)?, jointly)
    }

    /// The least number of CPUs after which all greater ones give no more, though null calls gain from there to all.
    fn stop(&self, null_calls: &Self, comparisons: usize) -> Option<ScalingStop> {
        let &(max_cpus, _) = self.points.last()?;
        let stop_at = |&(stop_cpus, _): &(u64, &RoundHeadlines<'_>)| {
            // A rate is the efficiency times the CPUs.
            let limit = |gain: f64, cpus: u64| gain * stop_cpus as f64 / cpus as f64;
            let control = null_calls.compare(stop_cpus, max_cpus, comparisons)?;
            let mut greater = self.points.iter().map(|point| point.0).filter(|&cpus| cpus > stop_cpus);
            let gives_no_more = |cpus: u64| {
                let compared = self.compare(stop_cpus, cpus, comparisons);
                compared.is_some_and(|compared| compared.is_below(limit(MAX_FURTHER_GAIN, cpus)))
            };
            let is_stop = control.is_above(limit(MIN_CPU_GAIN, max_cpus)) && greater.all(gives_no_more);
            let compared = self.compare(stop_cpus, max_cpus, comparisons).filter(|_| is_stop)?;
            Some(ScalingStop {
                service: self.service,
                stop_cpus,
                max_cpus,
                loss: control.ratio.value / compared.ratio.value,
                compared,
            })
        };
        self.points.iter().filter(|point| point.0 < max_cpus).find_map(stop_at)
    }
}

/// At how many CPUs memory gives no more, though the CPUs for it are there.
pub(super) fn memory_bandwidth(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let null_calls = ScalingCurve::of_threads(context, KernelService::NullCall);
    let points = curve_points(context, &select(&SCALING_READ).with_word(MemoryNodes::All.point()));
    let (&(_, one), &(max_cpus, all)) = (points.first().filter(|point| point.0 == 1)?, points.last()?);
    let comparisons = points.len() - 1;
    let stop = |(stop_cpus, stop_rounds): (u64, _)| {
        let control = null_calls.compare(stop_cpus, max_cpus, comparisons)?;
        let has_cpus = control.is_above(MIN_CPU_GAIN * stop_cpus as f64 / max_cpus as f64);
        let mut greater = points.iter().filter(|&&(cpus, _)| cpus > stop_cpus);
        let gives_no_more = |rounds: &RoundHeadlines<'_>| {
            let compared = FigureRatio::from_rounds_jointly(stop_rounds, rounds, comparisons);
            compared.is_some_and(|compared| compared.is_below(MAX_FURTHER_GAIN))
        };
        (has_cpus && greater.all(|&(_, rounds)| gives_no_more(rounds))).then_some((stop_cpus, stop_rounds))
    };
    let (stop_cpus, stop_rounds) = points.iter().copied().filter(|&(cpus, _)| cpus < max_cpus).find_map(stop)?;
    let gain = FigureRatio::from_rounds(one, stop_rounds)?;
    let rate = rate_text(gain.other);
    let text = match stop_cpus {
        1 => format!("Memory bandwidth stops growing at 1 of {max_cpus} CPUs: it reads {rate}."),
        _ => {
            let times = times_text(gain.ratio.value);
            format!(
                "Memory bandwidth stops growing at {stop_cpus} of {max_cpus} CPUs: {rate}, {times} times that of one."
            )
        }
    };
    let sides = [one, stop_rounds, all].map(RoundHeadlines::metric_value).into();
    Some(
        StandOutAnswer::new(Consequence::Ability, StandOutQuestion::MemoryScaling, sides, text)
            .with_factor(max_cpus as f64 / stop_cpus as f64),
    )
}

/// The known results of a curve over the CPUs at work, in ascending order of these.
fn curve_points<'a>(context: &'a StandOutContext<'_>, selector: &MetricSelector) -> Vec<(u64, &'a RoundHeadlines<'a>)> {
    let results = selector.find_all(&context.analysis.results);
    let point = |result: &MetricResult| Some((WORKING_CPUS.number_in(&result.case)?, context.result_rounds(result)?));
    let mut points: Vec<(u64, &RoundHeadlines<'_>)> = results.filter_map(point).collect();
    points.sort_by_key(|&(cpus, _)| cpus);
    points
}

/// How many times the rate of one process this many have, where that is tested.
fn process_gain(context: &StandOutContext<'_>, service: KernelService, cpus: u64) -> Option<Estimate> {
    let selector = select(&SCALING_EFFICIENCY).with_word(service.point()).with_word(TaskKind::Processes.point());
    let rounds = context.rounds(&selector.with_number(WORKING_CPUS, cpus))?;
    let gain = rounds.clone().scaled(cpus as f64).estimate()?;
    (!gain.is_range || rounds.values.len() >= MIN_RANGE_ROUNDS).then_some(gain)
}
