//! Causes that a plain run shows by itself, because it measures the same without them too: a figure and its control, which differ in
//! one thing.

use crate::{Metric, MetricCase};

use crate::catalogue::PairPlacement;
use crate::catalogue::mem::{BYTES, HUGE_PAGE, LATENCY, PageSize};
use crate::catalogue::net::{CLOSE, CONNECT, RTT_TCP, RTT_UDP, RTT_UNIX};
use crate::catalogue::os::{HandoffMechanism, IPC_LATENCY, SWITCH_CROSS_CPU, SWITCH_ROUND_TRIP};

/// A cause of figures, which are durations.
#[derive(Debug)]
pub struct ControlledCause {
    /// A word for data: `translation`.
    pub id: &'static str,
    /// What it is, as part of a sentence: `translation of addresses`.
    pub description: &'static str,
    /// A figure without it: the control; none of a figure that it does not touch.
    pub control: fn(&MetricCase) -> Option<ControlFigure>,
}

/// A figure without a cause: this many times another.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlFigure {
    /// That other.
    pub figure: MetricCase,
    /// How often.
    pub times: f64,
}

/// Translation of addresses: in huge pages the TLBs reach 512 times as far.
pub static ADDRESS_TRANSLATION: ControlledCause = ControlledCause {
    id: "translation",
    description: "translation of addresses",
    control: |figure| {
        let is_touched = figure.metric == LATENCY.id
            && PageSize::of(&figure.case) == Some(PageSize::Base)
            && BYTES.number_in(&figure.case).is_some_and(|bytes| bytes >= HUGE_PAGE);
        let case = figure.case.clone().with_word(PageSize::Huge);
        is_touched.then_some(ControlFigure { figure: MetricCase { metric: figure.metric, case }, times: 1.0 })
    },
};

/// Waking another CPU: the interrupt to it, its exit from an idle state, and lines that go from cache to cache.
pub static REMOTE_WAKE_UP: ControlledCause = ControlledCause {
    id: "another_cpu",
    description: "waking another CPU",
    control: |figure| one_way_control(figure).or(one_cpu_control(figure)),
};

/// All of them. Of those that touch one figure the first counts.
pub static CONTROLLED_CAUSES: [&ControlledCause; 2] = [&ADDRESS_TRANSLATION, &REMOTE_WAKE_UP];

/// Metrics between two processes, one operation of which wakes the other and is answered by it.
static TWO_PROCESS_METRICS: [&Metric; 6] = [&RTT_TCP, &RTT_UDP, &RTT_UNIX, &CONNECT, &CLOSE, &IPC_LATENCY];

/// The figure with both processes on one CPU, of [`TWO_PROCESS_METRICS`].
fn one_cpu_control(figure: &MetricCase) -> Option<ControlFigure> {
    let is_touched = TWO_PROCESS_METRICS.iter().any(|metric| metric.id == figure.metric)
        && PairPlacement::of(&figure.case) == Some(PairPlacement::TwoCpus);
    let case = figure.case.clone().with_word(PairPlacement::SameCpu);
    is_touched.then_some(ControlFigure { figure: MetricCase { metric: figure.metric, case }, times: 1.0 })
}

/// A wake-up is half a round trip; so is its control, with its calls: those of the wake-up are not subtracted either.
fn one_way_control(figure: &MetricCase) -> Option<ControlFigure> {
    if figure.metric != SWITCH_CROSS_CPU.id {
        return None;
    }
    let case = HandoffMechanism::of(&figure.case)?.between_processes();
    Some(ControlFigure { figure: MetricCase { metric: SWITCH_ROUND_TRIP.id, case }, times: 0.5 })
}

#[cfg(test)]
mod tests {
    use crate::{Case, Unit};

    use super::*;
    use crate::catalogue::find;
    use crate::catalogue::net::MESSAGE;

    fn control(metric: &Metric, case: Case) -> Option<(&'static str, ControlFigure)> {
        let figure = MetricCase { metric: metric.id, case };
        CONTROLLED_CAUSES.iter().find_map(|cause| Some((cause.id, (cause.control)(&figure)?)))
    }

    #[test]
    fn control_differs_in_one_axis() {
        let case = |pages: PageSize, bytes: u64| Case::new().with_word(pages).with_number(BYTES, bytes);
        let (cause, huge) = control(&LATENCY, case(PageSize::Base, 16 << 20)).unwrap();
        assert_eq!((cause, huge.figure.case, huge.times), ("translation", case(PageSize::Huge, 16 << 20), 1.0));
        assert_eq!(control(&LATENCY, case(PageSize::Huge, 16 << 20)), None);
        assert_eq!(control(&LATENCY, case(PageSize::Base, 1 << 20)), None);
        let message = |placement: PairPlacement| Case::new().with_word(placement).with_number(MESSAGE, 1);
        let (cause, same_cpu) = control(&RTT_TCP, message(PairPlacement::TwoCpus)).unwrap();
        assert_eq!((cause, same_cpu.figure.case), ("another_cpu", message(PairPlacement::SameCpu)));
        assert_eq!(control(&RTT_TCP, message(PairPlacement::SameCpu)), None);
        let (_, half) = control(&SWITCH_CROSS_CPU, Case::new().with_word(HandoffMechanism::Futex)).unwrap();
        assert_eq!((half.figure.metric, half.times), (SWITCH_ROUND_TRIP.id, 0.5));
        assert_eq!(half.figure.case, HandoffMechanism::Futex.between_processes());
        assert_eq!(control(&SWITCH_CROSS_CPU, Case::new()), None);
    }

    #[test]
    fn figures_and_controls_are_distinct_durations() {
        let two_process_cases =
            TWO_PROCESS_METRICS.iter().map(|metric| (*metric, Case::new().with_word(PairPlacement::TwoCpus)));
        let pages = (&LATENCY, Case::new().with_word(PageSize::Base).with_number(BYTES, HUGE_PAGE));
        let mechanisms = [HandoffMechanism::Pipe, HandoffMechanism::Futex];
        let wake_ups = mechanisms.map(|mechanism| (&SWITCH_CROSS_CPU, Case::new().with_word(mechanism)));
        for (metric, case) in two_process_cases.chain([pages]).chain(wake_ups) {
            let (_, ControlFigure { figure, .. }) = control(metric, case).unwrap();
            let control_metric = find(figure.metric).unwrap();
            assert_eq!([metric.unit, control_metric.unit], [Unit::Nanoseconds; 2], "{}", metric.id);
            assert_eq!(control(control_metric, figure.case), None, "{}", metric.id);
        }
    }
}
