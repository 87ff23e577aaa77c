//! Causes that a plain run shows by itself, because it measures the same without them too: a figure and its control, which differ in
//! one thing.

use kelvin_model::{Case, Metric, MetricAt};

use crate::Placement;
use crate::mem::{BYTES, HUGE_PAGE, LATENCY, PageSize};
use crate::net::{CLOSE, CONNECT, RTT_TCP, RTT_UDP, RTT_UNIX};
use crate::os::{
    IPC_FUTEX_LATENCY, IPC_PIPE_LATENCY, IPC_UNIX_LATENCY, SWITCH_CROSS_CPU, SWITCH_PROCESS_FUTEX_ROUND_TRIP,
    SWITCH_PROCESS_PIPE_ROUND_TRIP, TokenMeans,
};

/// A cause of figures, which are durations.
#[derive(Debug)]
pub struct HeldCause {
    /// A word for data: `translation`.
    pub id: &'static str,
    /// What it is, as part of a sentence: `translation of addresses`.
    pub what: &'static str,
    /// The same as a figure without it; none of what it does not touch.
    pub control: fn(&MetricAt) -> Option<Control>,
}

/// A figure without a cause: so many times another.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// That other.
    pub at: MetricAt,
    /// How often.
    pub times: f64,
}

/// Translation of addresses: in huge pages the TLBs reach 512 times as far.
pub static TRANSLATION: HeldCause = HeldCause {
    id: "translation",
    what: "translation of addresses",
    control: |figure| {
        let is_touched = figure.metric == LATENCY.id
            && PageSize::of(&figure.case) == Some(PageSize::Base)
            && BYTES.of(&figure.case).is_some_and(|bytes| bytes >= HUGE_PAGE);
        let case = figure.case.clone().at(PageSize::Huge);
        is_touched.then_some(Control { at: MetricAt { metric: figure.metric, case }, times: 1.0 })
    },
};

/// Waking another CPU: the interrupt to it, its exit from an idle state, and lines that go from cache to cache.
pub static ANOTHER_CPU: HeldCause = HeldCause {
    id: "another_cpu",
    what: "waking another CPU",
    control: |figure| of_one_way(figure).or(on_one_cpu(figure)),
};

/// All of them. Of those that touch one figure the first counts.
pub static HELD_BY_RUNS: [&HeldCause; 2] = [&TRANSLATION, &ANOTHER_CPU];

/// Metrics between two processes, one operation of which wakes the other and is answered by it.
static BETWEEN_TWO: [&Metric; 8] =
    [&RTT_TCP, &RTT_UDP, &RTT_UNIX, &CONNECT, &CLOSE, &IPC_PIPE_LATENCY, &IPC_UNIX_LATENCY, &IPC_FUTEX_LATENCY];

/// The same with both processes on one CPU.
fn on_one_cpu(figure: &MetricAt) -> Option<Control> {
    let is_touched = BETWEEN_TWO.iter().any(|metric| metric.id == figure.metric)
        && Placement::of(&figure.case) == Some(Placement::TwoCpus);
    let case = figure.case.clone().at(Placement::SameCpu);
    is_touched.then_some(Control { at: MetricAt { metric: figure.metric, case }, times: 1.0 })
}

/// A wake-up is half a round trip; so is its control, with its calls: those of the wake-up are not subtracted either.
fn of_one_way(figure: &MetricAt) -> Option<Control> {
    if figure.metric != SWITCH_CROSS_CPU.id {
        return None;
    }
    let there_and_back = match TokenMeans::of(&figure.case)? {
        TokenMeans::Pipe => &SWITCH_PROCESS_PIPE_ROUND_TRIP,
        TokenMeans::Futex => &SWITCH_PROCESS_FUTEX_ROUND_TRIP,
    };
    Some(Control { at: MetricAt { metric: there_and_back.id, case: Case::new() }, times: 0.5 })
}

#[cfg(test)]
mod tests {
    use kelvin_model::Unit;

    use super::*;
    use crate::find;
    use crate::net::MESSAGE;

    fn control(metric: &Metric, case: Case) -> Option<(&'static str, Control)> {
        let at = MetricAt { metric: metric.id, case };
        HELD_BY_RUNS.iter().find_map(|cause| Some((cause.id, (cause.control)(&at)?)))
    }

    #[test]
    fn a_control_differs_in_one_thing() {
        let set = |pages: PageSize, bytes: u64| Case::new().at(pages).with(BYTES, bytes);
        let (cause, huge) = control(&LATENCY, set(PageSize::Base, 16 << 20)).unwrap();
        assert_eq!((cause, huge.at.case, huge.times), ("translation", set(PageSize::Huge, 16 << 20), 1.0));
        assert_eq!(control(&LATENCY, set(PageSize::Huge, 16 << 20)), None);
        assert_eq!(control(&LATENCY, set(PageSize::Base, 1 << 20)), None);
        let message = |placement: Placement| Case::new().at(placement).with(MESSAGE, 1);
        let (cause, same) = control(&RTT_TCP, message(Placement::TwoCpus)).unwrap();
        assert_eq!((cause, same.at.case), ("another_cpu", message(Placement::SameCpu)));
        assert_eq!(control(&RTT_TCP, message(Placement::SameCpu)), None);
        let (_, half) = control(&SWITCH_CROSS_CPU, Case::new().at(TokenMeans::Futex)).unwrap();
        assert_eq!((half.at.metric, half.times), (SWITCH_PROCESS_FUTEX_ROUND_TRIP.id, 0.5));
        assert_eq!(control(&SWITCH_CROSS_CPU, Case::new()), None);
    }

    #[test]
    fn a_figure_and_its_control_are_durations_and_no_control_is_a_figure() {
        let touched = BETWEEN_TWO.iter().map(|metric| (*metric, Case::new().at(Placement::TwoCpus)));
        let pages = (&LATENCY, Case::new().at(PageSize::Base).with(BYTES, HUGE_PAGE));
        let means = TokenMeans::ALL.iter().map(|means| (&SWITCH_CROSS_CPU, Case::new().at(*means)));
        for (metric, case) in touched.chain([pages]).chain(means) {
            let (_, Control { at, .. }) = control(metric, case).unwrap();
            let control_of = find(at.metric).unwrap();
            assert_eq!([metric.unit, control_of.unit], [Unit::Nanoseconds; 2], "{}", metric.id);
            assert_eq!(control(control_of, at.case), None, "{}", metric.id);
        }
    }
}
