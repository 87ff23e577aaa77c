//! A load in words: rates, a table of response times, errors, and what the generator did.

use std::io::{self, Write};

use kelvin_core::Unit;
use kelvin_core::load::{
    GeneratorLimit, GeneratorStats, LatencySummary, LoadFigures, LoadResult, OfferedLoad, SecondResult,
};
use kelvin_core::units::{self, plural};
use kelvin_http::load::LoadSetup;
use kelvin_http::load::document::RateSearch;

use super::advice::generator_advice;
use super::failures::Failures;
use super::placement::GeneratorPlacement;
use super::sentence::{load_name, offered_text, time_text, write_paragraph};
use super::table::{self, write_latencies};
use super::{groups, http2};
use crate::output;

/// How far a measurement is, and the last second that is over.
pub fn progress_text(setup: &LoadSetup, series: &[SecondResult]) -> String {
    let Some(last) = series.last() else {
        return if setup.warm_up.is_zero() { "first second" } else { "warming up" }.to_owned();
    };
    let progress = match setup.requests {
        Some(requests) => {
            let count = series.iter().map(|second| second.requests + second.errors).sum();
            format!("{} of {}", units::count(count), plural(requests.into(), "request"))
        }
        None => format!("{} of {} s", series.len(), setup.duration.as_secs()),
    };
    format!(
        "{progress}, {}, p99 {}, {}",
        units::value_text(last.requests as f64, Unit::PerSecond),
        last.p99.map_or_else(|| "-".into(), time_text),
        plural(last.errors, "error")
    )
}

/// Writes a load.
pub fn write_load(load: &LoadResult, placement: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    let offered = match load.stages.len() as u64 {
        0 => offered_text(&load.offered),
        count => plural(count, "stage"),
    };
    write_paragraph(out, format_args!("{}: {offered}, {}", load.target, units::seconds(load.seconds)))?;
    if let Some(signal) = &load.interrupted {
        write_paragraph(out, format_args!("ended early by {signal}"))?;
    }
    let rate = units::value_text(load.rate(), Unit::PerSecond);
    let bytes = units::value_text(load.byte_rate(), Unit::BytesPerSecond);
    write_paragraph(
        out,
        format_args!("{}, {rate}; {}, {bytes}", plural(load.requests, "request"), units::bytes(load.bytes)),
    )?;
    let connections = plural(load.connections, "connection");
    // A log may be over before its first request is on its way.
    let in_flight = match load.in_flight {
        Some(in_flight) => format!("{} in flight on average", units::number(in_flight)),
        None => format!("none in flight within the measured {}", units::seconds(load.seconds)),
    };
    write_paragraph(out, format_args!("{in_flight}, {connections} opened"))?;
    http2::write_http2(load.http2.as_ref(), out)?;
    Failures::of(load).write(out)?;
    writeln!(out)?;
    write_table(load, out)?;
    writeln!(out)?;
    groups::write_groups(load, out)?;
    write_generator(load, placement, out)?;
    write_placement(placement, out)
}

/// Writes several loads on one server: a line of each, and their throughput against their response times.
pub fn write_loads(loads: &[LoadResult], placement: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = loads.first() else { return Ok(()) };
    write_paragraph(out, format_args!("{}: each load for {}", first.target, units::seconds(first.seconds)))?;
    if let Some(signal) = loads.iter().find_map(|load| load.interrupted.as_ref()) {
        write_paragraph(out, format_args!("ended early by {signal}"))?;
    }
    writeln!(out)?;
    let figures: Vec<LoadFigures<'_>> = loads.iter().map(LoadResult::figures).collect();
    table::write_comparison(&figures, out)?;
    writeln!(out)?;
    // What it influences of each load: all figures, the response times, or their tail.
    let influence = |generator: &GeneratorStats| {
        [generator.limit.is_some(), generator.slow_mean.is_some(), generator.slow_tail.is_some()]
            .iter()
            .position(|&is_set| is_set)
    };
    let last_limited = loads.iter().rfind(|load| load.generator.limit.is_some());
    let advice = last_limited.map_or_else(String::new, |load| advice_text(load, placement));
    let limit_text = format!(": these figures are no measure of the server.{advice}");
    for (kind, before, after) in [
        (0, "The generator was the limit with", limit_text.as_str()),
        (1, "With", " a part of the response times is the generator's own: see them one by one."),
        (2, "The slow tail is the generator's with", ": p99 is no measure of the server."),
    ] {
        let influenced = loads.iter().filter(|load| influence(&load.generator) == Some(kind));
        let names = influenced.map(|load| load_name(load.offered)).collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            write_paragraph(out, format_args!("{before} {names}{after}"))?;
        }
    }
    write_placement(placement, out)
}

/// Writes where the generator ran, unless that was left to the system.
fn write_placement(placement: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    match placement {
        GeneratorPlacement::Anywhere { .. } => Ok(()),
        _ => write_paragraph(out, format_args!("generator: {placement}")),
    }
}

/// Reports on standard error the result of one rate of a search.
pub fn report_attempt(rate: f64, is_met: bool, load: &LoadResult) {
    let verdict = if is_met { "kept" } else { "missed" };
    let LatencySummary { count, p99, .. } = load.response;
    let p99 = if count > 0 { format!("p99 {}", time_text(p99)) } else { "no answer".into() };
    let errors = plural(load.failed_requests(), "error");
    output::eprint_line(format_args!("{}: {verdict}, {p99}, {errors}", units::value_text(rate, Unit::PerSecond)));
}

/// Reports on standard error that the search ends at a rate at which nothing was due in the measured time.
pub fn report_no_request_due(rate: f64, load: &LoadResult) {
    let (rate, time) = (units::value_text(rate, Unit::PerSecond), units::seconds(load.seconds));
    output::eprint_line(format_args!("{rate}: no request was due within {time}; use a longer --duration"));
}

/// Writes what a search found.
pub fn write_search(search: &RateSearch, placement: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    let rate = |rate: f64| units::value_text(rate, Unit::PerSecond);
    let RateSearch { objective, highest_passing, lowest_failing, is_generator_limit, tries } = search;
    let result = match (highest_passing, lowest_failing) {
        (Some(passing), Some(failing)) => {
            format!("the highest rate with {objective} is {}; {} missed it", rate(*passing), rate(*failing))
        }
        (Some(passing), None) => format!("{} kept {objective}; the highest rate is not known", rate(*passing)),
        (None, _) => format!("no rate that was measured kept {objective}"),
    };
    write_paragraph(out, result)?;
    if let Some(last) = tries.last().filter(|_| *is_generator_limit) {
        let advice = advice_text(&last.result, placement);
        write_paragraph(
            out,
            format_args!("The generator was the limit of the last try: the server may sustain more.{advice}"),
        )?;
    }
    let is_best = |load: &&LoadResult| matches!((load.offered, highest_passing), (OfferedLoad::Rate { rate, .. }, Some(passing)) if rate == *passing);
    match tries.iter().map(|load| &load.result).find(is_best) {
        Some(best) => {
            writeln!(out)?;
            write_load(best, placement, out)
        }
        None => write_placement(placement, out),
    }
}

fn write_table(load: &LoadResult, out: &mut dyn Write) -> io::Result<()> {
    table::write_latency_head(out)?;
    match load.offered {
        OfferedLoad::Rate { .. } => {
            write_latencies("from when it was due", &load.response, out)?;
            write_latencies("from when it was sent", &load.service, out)?;
        }
        OfferedLoad::Users { .. } => {
            write_latencies("as users saw it", &load.response, out)?;
            if load.generator.slow_mean.is_some() {
                write_latencies("from when it was sent", &load.service, out)?;
            }
            if let Some(corrected) = &load.corrected {
                write_latencies("at a rate (estimate)", corrected, out)?;
            }
        }
    }
    Ok(())
}

/// What the generator did, and whether it was the limit.
fn write_generator(load: &LoadResult, placement: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    let GeneratorStats { busy, late, read_delay, threads, .. } = &load.generator;
    let busy_text = match (busy, threads.len()) {
        (Some(share), ..=1) => format!("{} busy", units::percent(*share)),
        (Some(share), count) => format!("{count} threads, the busiest {} busy", units::percent(*share)),
        (None, _) => format!("how busy it was is not known for {}", units::seconds(load.seconds)),
    };
    let late_text =
        if late.count > 0 { format!(", sent {} late on average", time_text(late.mean)) } else { String::new() };
    let read_delay_text =
        read_delay.map_or_else(String::new, |delay| format!(", read answers {} late", time_text(delay)));
    write_paragraph(out, format_args!("generator: {busy_text}{late_text}{read_delay_text}"))?;
    write_limits(load, placement, out)
}

/// Which figures of a load are the generator's own.
fn write_limits(load: &LoadResult, placement: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    let generator = &load.generator;
    let GeneratorStats { own_delay, .. } = generator;
    let text = match (generator.limit, generator.slow_mean, generator.slow_tail) {
        (None, None, None) => return Ok(()),
        (None, Some(share), _) => format!(
            "Response times have {} of the generator's own delays on average, which is {} of them. Those from when a request was sent leave \
             out how late that was.",
            time_text(own_delay.mean),
            units::percent(share)
        ),
        (None, None, Some(share)) => format!(
            "The slow tail is the generator's: p99 of its own delays is {}, {} of that of the response time. p99 and above are no measure of \
             the server.",
            time_text(own_delay.p99),
            units::percent(share)
        ),
        (Some(limit), ..) => {
            let reason = match limit {
                GeneratorLimit::Busy { share, thread } => {
                    let thread = match generator.threads.len() {
                        ..=1 => "its thread".to_owned(),
                        count => format!("its thread {thread} of {count}"),
                    };
                    format!("{thread} worked or waited for a CPU {} of the time", units::percent(share))
                }
                GeneratorLimit::Late { share } => {
                    format!("its own delays lowered the rate of requests by {}", units::percent(share))
                }
            };
            let advice = advice_text(load, placement);
            format!("The generator was the limit: {reason}. These figures are no measure of the server.{advice}")
        }
    };
    write_paragraph(out, text)
}

/// The advice on a load that the generator limited, after another sentence.
fn advice_text(load: &LoadResult, placement: &GeneratorPlacement) -> String {
    generator_advice(load, placement).map_or_else(String::new, |advice| format!(" {advice}"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::load::{GeneratorThread, RequestErrors};

    use super::*;

    const ANYWHERE: GeneratorPlacement = GeneratorPlacement::Anywhere { allowed: 8 };

    #[test]
    fn port_exhaustion_error_names_remedy() {
        let mut load = LoadResult { seconds: 1.0, requests: 1, connections: 1, ..LoadResult::empty("http://a/") };
        load.errors = RequestErrors { no_port: 7, ..RequestErrors::default() };
        let mut out = Vec::new();
        write_load(&load, &ANYWHERE, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap().replace('\n', " ");
        assert!(text.contains("7 errors: 7 without a local port to connect from"), "{text}");
        assert!(text.contains("net.ipv4.ip_local_port_range") && text.contains("keep-alive"), "{text}");
        assert!(!text.contains("not connected"), "{text}");
    }

    #[test]
    fn busiest_thread_is_named() {
        let limit_text = |threads: usize| {
            let offered = OfferedLoad::Users { users: 64, think: 0.0 };
            let mut load = LoadResult { seconds: 1.0, requests: 1, offered, ..LoadResult::empty("http://a/") };
            load.generator.threads = vec![GeneratorThread::default(); threads];
            load.generator.busy = Some(0.95);
            load.generator.limit = Some(GeneratorLimit::Busy { share: 0.95, thread: threads as u32 });
            let (mut out, mut loads_out) = (Vec::new(), Vec::new());
            write_load(&load, &ANYWHERE, &mut out).unwrap();
            write_loads(&[load.clone(), load], &ANYWHERE, &mut loads_out).unwrap();
            [out, loads_out].map(|text| String::from_utf8(text).unwrap().replace('\n', " "))
        };
        let [text, loads_text] = limit_text(3);
        assert!(text.contains("generator: 3 threads, the busiest 95 % busy"), "{text}");
        assert!(text.contains("The generator was the limit: its thread 3 of 3 worked or waited"), "{text}");
        assert!(text.contains("no measure of the server. Give --threads 6."), "{text}");
        assert!(loads_text.contains("no measure of the server. Give --threads 6."), "{loads_text}");
        let [text, _] = limit_text(1);
        assert!(text.contains("generator: 95 % busy") && text.contains("limit: its thread worked"), "{text}");
        assert!(text.contains("Give --threads 2."), "{text}");
    }

    fn limits_text(in_flight: Option<f64>, busy: Option<f64>, read_delay: Option<f64>) -> String {
        let mut load =
            LoadResult { seconds: 1e-6, requests: 1, connections: 1, in_flight, ..LoadResult::empty("http://a/") };
        load.offered = OfferedLoad::Rate { rate: 1e6, due: 1e6, delayed: 0 };
        load.generator = GeneratorStats { busy, read_delay, ..load.generator };
        let mut out = Vec::new();
        write_load(&load, &ANYWHERE, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn unobserved_cpu_use_is_not_zero() {
        let unobserved_text = limits_text(None, None, None);
        assert!(
            unobserved_text.contains("\nnone in flight within the measured 1.00 µs, 1 connection opened\n"),
            "{unobserved_text}"
        );
        assert!(
            unobserved_text.contains("\ngenerator: how busy it was is not known for 1.00 µs\n"),
            "{unobserved_text}"
        );
        let observed_text = limits_text(Some(0.5), Some(0.0004), Some(10.0));
        assert!(observed_text.contains("\n0.50 in flight on average, 1 connection opened\n"), "{observed_text}");
        assert!(observed_text.contains("\ngenerator: <0.1 % busy, read answers 10.0 ns late\n"), "{observed_text}");
    }
}
