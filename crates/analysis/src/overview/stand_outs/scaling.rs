//! What stands out where several CPUs ask the kernel for the same at once, move memory, or read the disk: from how many on more give no more.

use kelvin_core::IndirectSort;
use kelvin_core::catalogue::file::{JOBS, JOBS_DEPTH, JOBS_IOPS, QUEUE_DEPTH};
use kelvin_core::catalogue::mem::{MemoryNodes, SCALING_READ};
use kelvin_core::catalogue::os::{KernelService, SCALING_EFFICIENCY, SCALING_RATE, TaskKind, WORKING_CPUS};

use super::*;
use crate::growth_end::MAX_FURTHER_GAIN;

/// Times the rate of null calls from which on more CPUs are there: these share nothing, so that less is due to second threads of cores,
/// a quota or other work.
const MIN_CPU_GAIN: f64 = 1.5;
/// Services that have their place in the sentence; of more the number.
const MAX_NAMED_SERVICES: usize = 3;

impl StandOutContext<'_> {
    /// The knee of a curve.
    fn growth_end(&self, curve: &MetricSelector) -> Option<&GrowthEnd> {
        let ends = self.analysis.growth_ends.iter();
        ends.into_iter().find(|end| end.metric == curve.metric.id && curve.is_selecting(&end.fixed))
    }

    /// The known numbers of a curve, ascending.
    fn counts(&self, curve: MetricSelector, axis: Axis) -> Vec<u64> {
        let known = curve.find_all(&self.analysis.results).filter(|result| self.result_rounds(result).is_some());
        distinct(known.filter_map(|result| axis.number_in(&result.case)))
    }

    /// A service in threads with more CPUs over that with fewer.
    fn service_gain(&self, service: KernelService, [fewer, more]: [u64; 2]) -> Option<FigureRatio> {
        let [base, other] = [fewer, more].map(|cpus| service_rates(service).with_number(WORKING_CPUS, cpus));
        self.figure_ratio(&base, &other)
    }

    /// What null calls gain from more CPUs, where these are there.
    fn cpu_gain(&self, counts: [u64; 2]) -> Option<FigureRatio> {
        self.service_gain(KernelService::NullCall, counts).filter(|gain| gain.is_above(MIN_CPU_GAIN))
    }
}

/// The rates of a service in threads.
fn service_rates(service: KernelService) -> MetricSelector {
    select(&SCALING_RATE).with_word(service.point()).with_word(TaskKind::Threads.point())
}

/// Which services more threads of one process do no more of, though the CPUs for them are there.
pub(super) fn service_scaling(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let services = KernelService::ALL.iter().filter(|&&service| service != KernelService::NullCall);
    let mut stops: Vec<ServiceStop> =
        services.filter_map(|&service| ServiceStop::of_threads(context, service)).collect();
    stops.indirect_sort_by_key(|stop| stop.counts[0]);
    let loss = stops.iter().map(|stop| stop.loss).reduce(f64::max)?;
    let is_curve = stops.iter().any(|stop| stop.is_of_curve);
    let weight = if is_curve { Consequence::OfMoreCpus } else { Consequence::Avoidable };
    let question = StandOutQuestion::ServiceScaling;
    let answer = match <[ServiceStop; 1]>::try_from(stops) {
        Ok([stop]) => {
            let text = stop.sentence(context);
            stop.compared.into_answer(weight, question, text)
        }
        Err(stops) => {
            let text = sentence_of_several(context, &stops);
            let sides = stops.into_iter().flat_map(|stop| stop.compared.sides).collect();
            StandOutAnswer::new(weight, question, sides, text)
        }
    };
    Some(answer.with_factor(loss))
}

/// Where a service stops.
struct ServiceStop {
    service: KernelService,
    /// CPUs from which on more are none, and all that were tried.
    counts: [u64; 2],
    /// Whether that is the knee of a curve.
    is_of_curve: bool,
    /// How many times as much null calls gain from there to all.
    loss: f64,
    /// The rate with all of them over that there.
    compared: FigureRatio,
}

impl ServiceStop {
    fn of_threads(context: &StandOutContext<'_>, service: KernelService) -> Option<Self> {
        let knee = context.growth_end(&service_rates(service));
        let counts = match knee {
            Some(knee) => [knee.at, knee.max],
            // Two CPUs are no curve, but one comparison.
            None => context.counts(service_rates(service), WORKING_CPUS).try_into().ok()?,
        };
        let control = context.cpu_gain(counts)?;
        let gives_no_more = |gain: &FigureRatio| knee.is_some() || gain.is_below(MAX_FURTHER_GAIN);
        let compared = context.service_gain(service, counts).filter(gives_no_more)?;
        let loss = control.ratio.value / compared.ratio.value;
        Some(Self { service, counts, is_of_curve: knee.is_some(), loss, compared })
    }

    fn sentence(&self, context: &StandOutContext<'_>) -> String {
        let [stop_cpus, max_cpus] = self.counts;
        let subject = capitalise(service_name(self.service));
        let processes = self.process_gain(context).map_or_else(String::new, |gain| {
            format!("; {max_cpus} processes reach {} times the rate of one", times_text(gain.value))
        });
        format!("{subject} stops scaling at {stop_cpus} of {max_cpus} CPUs in threads of one process{processes}.")
    }

    /// How many times the rate of one process one on each CPU have, where that is tested, and more than threads can.
    fn process_gain(&self, context: &StandOutContext<'_>) -> Option<Estimate> {
        let [stop_cpus, max_cpus] = self.counts;
        let processes = TaskKind::Processes.point();
        let selector = select(&SCALING_EFFICIENCY).with_word(self.service.point()).with_word(processes);
        let rounds = context.rounds(&selector.with_number(WORKING_CPUS, max_cpus))?;
        let gain = rounds.clone().scaled(max_cpus as f64).estimate()?;
        let is_tested = !gain.is_range || rounds.values.len() >= MIN_RANGE_ROUNDS;
        (is_tested && gain.low > MIN_CPU_GAIN * stop_cpus as f64).then_some(gain)
    }
}

/// `These stop scaling in threads: mapping memory at 2 of 128 CPUs, forking and creating files at 16 and 2 more.`
fn sentence_of_several(context: &StandOutContext<'_>, stops: &[ServiceStop]) -> String {
    let (named, unnamed) = stops.split_at(stops.len().min(MAX_NAMED_SERVICES));
    let place = |(index, stops): (usize, &[ServiceStop])| {
        let [stop_cpus, max_cpus] = stops[0].counts;
        let names: Vec<&str> = stops.iter().map(|stop| service_name(stop.service)).collect();
        let of_all = if index == 0 { format!(" of {max_cpus} CPUs") } else { String::new() };
        format!("{} at {stop_cpus}{of_all}", list_text(&names))
    };
    let of_one_place = named.chunk_by(|a, b| a.counts == b.counts);
    let mut places: Vec<String> = of_one_place.enumerate().map(place).collect();
    if !unnamed.is_empty() {
        places.push(format!("{} more", unnamed.len()));
    }
    let do_processes_scale = unnamed.is_empty() && stops.iter().all(|stop| stop.process_gain(context).is_some());
    let processes = if do_processes_scale { "; processes go further" } else { "" };
    format!("These stop scaling in threads: {}{processes}.", list_text(&places))
}

fn service_name(service: KernelService) -> &'static str {
    match service {
        KernelService::NullCall => "a null call",
        KernelService::ForkExitWait => "forking",
        KernelService::MmapMunmap => "mapping memory",
        KernelService::PageFault => "touching new memory",
        KernelService::CreateUnlink => "creating files",
        KernelService::FutexWake => "waking futexes",
        KernelService::ConnectAccept => "accepting connections",
    }
}

/// At how many CPUs memory gives no more, though the CPUs for it are there.
pub(super) fn memory_bandwidth(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let rates = select(&SCALING_READ).with_word(MemoryNodes::All.point());
    let knee = context.growth_end(&rates)?;
    let place = growth_end_place(knee);
    context.cpu_gain([knee.at, knee.max])?;
    let rounds = |cpus| context.rounds(&rates.with_number(WORKING_CPUS, cpus));
    let (one, stop, all) = (rounds(1)?, rounds(knee.at)?, rounds(knee.max)?);
    let gain = FigureRatio::from_rounds(one, stop)?;
    let rate = rate_text(gain.other);
    let text = match knee.at {
        1 => format!("Memory bandwidth stops growing at {place}: it reads {rate}."),
        _ => {
            let times = times_text(gain.ratio.value);
            format!("Memory bandwidth stops growing at {place}: {rate}, {times} times that of one.")
        }
    };
    let sides = [one, stop, all].map(RoundHeadlines::metric_value).into();
    let answer = StandOutAnswer::new(Consequence::OfMoreCpus, StandOutQuestion::MemoryScaling, sides, text);
    Some(answer.with_factor(knee.max as f64 / knee.at as f64))
}

/// How much more of the disk several CPUs get than one, and from how many on no more.
pub(super) fn device_requests(context: &StandOutContext<'_>) -> Option<StandOutAnswer> {
    let rates = select(&JOBS_IOPS).with_number(QUEUE_DEPTH, JOBS_DEPTH);
    let rounds = |jobs| context.rounds(&rates.with_number(JOBS, jobs));
    let counts = context.counts(rates, JOBS);
    let &[_, .., before_last, max_jobs] = counts.as_slice() else { return None };
    let (jobs, growth) = match context.growth_end(&rates) {
        Some(knee) => {
            context.cpu_gain([knee.at, knee.max])?;
            (knee.at, format!("stop growing at {}", growth_end_place(knee)))
        }
        None => {
            let last_gain = FigureRatio::from_rounds(rounds(before_last)?, rounds(max_jobs)?)?;
            last_gain.is_above(1.0).then(|| (max_jobs, format!("still grow at {max_jobs} jobs")))?
        }
    };
    let gain = FigureRatio::from_rounds(rounds(1)?, rounds(jobs)?).filter(|gain| gain.is_above(MIN_CPU_GAIN))?;
    let (requests, times) = (requests_text(gain.other), times_text(gain.ratio.value));
    let text = format!("Random disk reads {growth}: {requests} blocks of 4 KiB a second, {times} times those of one.");
    Some(gain.into_answer(Consequence::OfMoreCpus, StandOutQuestion::DeviceScaling, text))
}
