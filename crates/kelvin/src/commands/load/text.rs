//! A load in words: rates, a table of response times, errors, and what the generator did.

use std::fmt::Display;
use std::io::{self, Write};

use kelvin_core::Unit;
use kelvin_core::load::{
    GeneratorLimit, GeneratorStats, LatencySummary, LoadResult, OfferedLoad, RateSearch, RequestErrors, SecondResult,
};
use kelvin_core::units::{self, plural};
use kelvin_report::text::{pad_left, pad_right};

use super::placement::GeneratorPlacement;
use super::plot;
use super::sentence::{load_name, time_text};
use crate::output;

/// Width of the names and of the columns of the table.
const NAME_WIDTH: usize = 22;
const COLUMN_WIDTH: usize = 9;

/// How far a measurement of this many seconds is: the last second that is over.
pub fn progress_text(seconds: u64, series: &[SecondResult]) -> String {
    let Some(last) = series.last() else { return "warming up".to_owned() };
    format!(
        "{} of {seconds} s, {}, p99 {}, {}",
        series.len(),
        units::value_text(last.requests as f64, Unit::PerSecond),
        last.p99.map_or_else(|| "-".into(), time_text),
        plural(last.errors, "error")
    )
}

/// Writes a load.
pub fn write_load(load: &LoadResult, place: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    say(out, format_args!("{}: {}, {}", load.target, offered_text(&load.offered), units::seconds(load.seconds)))?;
    if let Some(signal) = &load.interrupted {
        say(out, format_args!("ended early by {signal}"))?;
    }
    let rate = units::value_text(load.rate(), Unit::PerSecond);
    let bytes = units::value_text(load.byte_rate(), Unit::BytesPerSecond);
    say(out, format_args!("{}, {rate}; {}, {bytes}", plural(load.requests, "request"), units::bytes(load.bytes)))?;
    let connections = plural(load.connections, "connection");
    // A log may be over before its first request is on its way.
    let in_flight = match load.in_flight {
        Some(in_flight) => format!("{} in flight on average", units::number(in_flight)),
        None => format!("none in flight within the measured {}", units::seconds(load.seconds)),
    };
    say(out, format_args!("{in_flight}, {connections} opened"))?;
    write_errors(load, out)?;
    writeln!(out)?;
    write_table(load, out)?;
    writeln!(out)?;
    write_generator(load, out)?;
    write_placement(place, out)
}

/// Writes several loads on one server: a line of each, and their throughput against their response times.
pub fn write_loads(loads: &[LoadResult], place: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = loads.first() else { return Ok(()) };
    say(out, format_args!("{}: each load for {}", first.target, units::seconds(first.seconds)))?;
    if let Some(signal) = loads.iter().find_map(|load| load.interrupted.as_ref()) {
        say(out, format_args!("ended early by {signal}"))?;
    }
    writeln!(out)?;
    write_cells(out, "response time of", &["answers", "mean", "p50", "p95", "p99", "errors"])?;
    loads.iter().try_for_each(|load| write_row(load, out))?;
    let figure = plot::throughput_figure(loads);
    let kelvin_report::figures::Drawing::Plot(plot) = &figure.drawing else { return Ok(()) };
    writeln!(out)?;
    for line in kelvin_report::terminal::plot_lines(plot, output::width()) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    // What it influences of each load: all figures, the response times, or their tail.
    let influence = |generator: &GeneratorStats| {
        [generator.limit.is_some(), generator.slow_mean.is_some(), generator.slow_tail.is_some()]
            .iter()
            .position(|&is| is)
    };
    for (kind, before, after) in [
        (0, "The generator was the limit with", ": these figures are no measure of the server."),
        (1, "With", " a part of the response times is the generator's own: see them one by one."),
        (2, "The slow tail is the generator's with", ": p99 is no measure of the server."),
    ] {
        let influenced = loads.iter().filter(|load| influence(&load.generator) == Some(kind));
        let names = influenced.map(load_name).collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            say(out, format_args!("{before} {names}{after}"))?;
        }
    }
    write_placement(place, out)
}

/// A load in a line of a table.
fn write_row(load: &LoadResult, out: &mut dyn Write) -> io::Result<()> {
    let LatencySummary { mean, p50, p95, p99, .. } = load.response;
    let [mean, p50, p95, p99] =
        [mean, p50, p95, p99].map(|value| if load.response.count > 0 { time_text(value) } else { "-".into() });
    let [rate, errors] = [units::value_text(load.rate(), Unit::PerSecond), units::count(load.failed_requests())];
    write_cells(out, &load_name(load), &[rate, mean, p50, p95, p99, errors])
}

/// A line of a table.
fn write_cells(out: &mut dyn Write, name: &str, cells: &[impl AsRef<str>]) -> io::Result<()> {
    let cells: String = cells.iter().map(|cell| pad_left(cell.as_ref(), COLUMN_WIDTH)).collect();
    writeln!(out, "{}{cells}", pad_right(name, NAME_WIDTH))
}

/// Writes a paragraph, as wide as the terminal.
fn say(out: &mut dyn Write, text: impl Display) -> io::Result<()> {
    output::hanging(out, "", &text.to_string())
}

/// Says where the generator ran, unless that was left to the system.
fn write_placement(place: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    if *place == GeneratorPlacement::Anywhere { Ok(()) } else { say(out, format_args!("generator: {place}")) }
}

/// Says on standard error what came of one rate of a search.
pub fn report_attempt(rate: f64, is_kept: bool, load: &LoadResult) {
    let verdict = if is_kept { "kept" } else { "missed" };
    let LatencySummary { count, p99, .. } = load.response;
    let p99 = if count > 0 { format!("p99 {}", time_text(p99)) } else { "no answer".into() };
    let errors = plural(load.failed_requests(), "error");
    output::eprint_line(format_args!("{}: {verdict}, {p99}, {errors}", units::value_text(rate, Unit::PerSecond)));
}

/// Says on standard error that the search ends at a rate at which nothing was due in the measured time.
pub fn report_no_request_due(rate: f64, load: &LoadResult) {
    let (rate, time) = (units::value_text(rate, Unit::PerSecond), units::seconds(load.seconds));
    output::eprint_line(format_args!("{rate}: no request was due within {time}; a longer --duration tells more"));
}

/// Writes what a search found.
pub fn write_search(search: &RateSearch, place: &GeneratorPlacement, out: &mut dyn Write) -> io::Result<()> {
    let rate = |rate: f64| units::value_text(rate, Unit::PerSecond);
    let RateSearch { objective, highest_passing: kept, lowest_failing: missed, is_generator_limit, tries } = search;
    let result = match (kept, missed) {
        (Some(kept), Some(missed)) => {
            format!("the highest rate with {objective} is {}; {} missed it", rate(*kept), rate(*missed))
        }
        (Some(kept), None) => format!("{} kept {objective}; the highest rate is not known", rate(*kept)),
        (None, _) => format!("no rate that was measured kept {objective}"),
    };
    say(out, result)?;
    if *is_generator_limit {
        say(out, format_args!("The generator was the limit of the last try: the server may keep more."))?;
    }
    let is_best = |load: &&LoadResult| matches!((load.offered, kept), (OfferedLoad::Rate { rate, .. }, Some(kept)) if rate == *kept);
    match tries.iter().find(is_best) {
        Some(best) => {
            writeln!(out)?;
            write_load(best, place, out)
        }
        None => write_placement(place, out),
    }
}

fn offered_text(offered: &OfferedLoad) -> String {
    match offered {
        OfferedLoad::Users { users, think } => {
            let think = if *think > 0.0 { format!("think time {}", time_text(*think)) } else { "no think time".into() };
            format!("{}, {think}", plural(u64::from(*users), "user"))
        }
        OfferedLoad::Rate { rate: 1.0, .. } => "1 request a second".into(),
        OfferedLoad::Rate { rate, .. } => format!("{} requests a second", units::number(*rate)),
    }
}

/// What was no right answer, and what did not come.
fn write_errors(load: &LoadResult, out: &mut dyn Write) -> io::Result<()> {
    let RequestErrors { first, .. } = &load.errors;
    let parts = error_counts(load);
    match load.failed_requests() {
        0 => say(out, format_args!("no errors"))?,
        count => say(out, format_args!("{}: {}", plural(count, "error"), parts.join(", ")))?,
    }
    if let Some(first) = first {
        say(out, format_args!("the first: {first}"))?;
    }
    if load.errors.no_port > 0 {
        let why = "this host has no port left: each connection that ends holds one for a minute (TIME_WAIT)";
        let remedy = "widen net.ipv4.ip_local_port_range, or have the server keep connections (keep-alive)";
        say(out, format_args!("{why}: {remedy}"))?;
    }
    if first.as_ref().is_some_and(|first| first.starts_with("TLS: ") && first.contains("certificate")) {
        say(out, format_args!("--ca FILE names certificates that are believed; --insecure believes any"))?;
    }
    if load.errors.status.keys().any(|status| (300..400).contains(status)) {
        say(out, format_args!("redirects are not followed: name the URL that they lead to"))?;
    }
    if load.resent > 0 {
        let count = units::count(load.resent);
        say(out, format_args!("{count} sent again, because the server closed an idle connection"))?;
    }
    write_due(load, out)
}

/// What became due at a rate, and what was not sent or answered in time.
fn write_due(load: &LoadResult, out: &mut dyn Write) -> io::Result<()> {
    if let OfferedLoad::Rate { due, delayed: waited, .. } = load.offered {
        say(out, format_args!("{} became due", units::value_text(due, Unit::PerSecond)))?;
        if waited > 0 {
            say(out, format_args!("{} waited for a free connection: see --connections", units::count(waited)))?;
        }
        if load.unanswered > 0 {
            let count = units::count(load.unanswered);
            let text = "without an answer, with the time that they had waited";
            say(out, format_args!("response times have the {count} {text}"))?;
        }
    }
    Ok(())
}

fn error_counts(load: &LoadResult) -> Vec<String> {
    let errors = &load.errors;
    let kinds = [
        (errors.connect, "not connected"),
        (errors.no_port, "without a local port to connect from"),
        (errors.closed, "closed without an answer"),
        (errors.timed_out, "timed out"),
        (errors.short, "short bodies"),
        (errors.malformed, "no HTTP"),
        (errors.wrong, "wrong bytes"),
        (load.unanswered, "without an answer"),
    ];
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds = kinds.map(|(count, what)| format!("{} {what}", units::count(count)));
    let status = errors.status.iter().map(|(status, count)| format!("{} status {status}", units::count(*count)));
    kinds.chain(status).collect()
}

fn write_table(load: &LoadResult, out: &mut dyn Write) -> io::Result<()> {
    write_cells(out, "response time", &["mean", "p50", "p95", "p99", "p99.9", "max"])?;
    match load.offered {
        OfferedLoad::Rate { .. } => {
            write_line("from when it was due", &load.response, out)?;
            write_line("from when it was sent", &load.service, out)?;
        }
        OfferedLoad::Users { .. } => {
            write_line("as users saw it", &load.response, out)?;
            if load.generator.slow_mean.is_some() {
                write_line("from when it was sent", &load.service, out)?;
            }
            if let Some(corrected) = &load.corrected {
                write_line("at a rate (estimate)", corrected, out)?;
            }
        }
    }
    Ok(())
}

fn write_line(name: &str, times: &LatencySummary, out: &mut dyn Write) -> io::Result<()> {
    let LatencySummary { mean, p50, p95, p99, p999, max, .. } = *times;
    match times.count {
        0 => write_cells(out, name, &["-"]),
        _ => write_cells(out, name, &[mean, p50, p95, p99, p999, max].map(time_text)),
    }
}

/// What the generator did, and whether it was the limit.
fn write_generator(load: &LoadResult, out: &mut dyn Write) -> io::Result<()> {
    let GeneratorStats { busy, late, read_delay: unread, .. } = &load.generator;
    let busy = match busy {
        Some(busy) => format!("{} busy", units::percent(*busy)),
        None => format!("how busy it was cannot be told of {}", units::seconds(load.seconds)),
    };
    let late = if late.count > 0 { format!(", sent {} late on average", time_text(late.mean)) } else { String::new() };
    let unread = unread.map_or_else(String::new, |unread| format!(", read answers {} late", time_text(unread)));
    say(out, format_args!("generator: {busy}{late}{unread}"))?;
    write_limits(&load.generator, out)
}

/// Which figures of a load are the generator's own.
fn write_limits(generator: &GeneratorStats, out: &mut dyn Write) -> io::Result<()> {
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
            let why = match limit {
                GeneratorLimit::Busy { share } => {
                    format!("its thread worked or waited for a CPU {} of the time", units::percent(share))
                }
                GeneratorLimit::Late { share } => {
                    format!("its own delays lowered the rate of requests by {}", units::percent(share))
                }
            };
            format!("The generator was the limit: {why}. These figures are no measure of the server.")
        }
    };
    say(out, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_a_port_left_is_named_with_what_helps() {
        let mut one = LoadResult { seconds: 1.0, requests: 1, connections: 1, ..LoadResult::empty("http://a/") };
        one.errors = RequestErrors { no_port: 7, ..RequestErrors::default() };
        let mut out = Vec::new();
        write_load(&one, &GeneratorPlacement::Anywhere, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap().replace('\n', " ");
        assert!(text.contains("7 errors: 7 without a local port to connect from"), "{text}");
        assert!(text.contains("net.ipv4.ip_local_port_range") && text.contains("keep-alive"), "{text}");
        assert!(!text.contains("not connected"), "{text}");
    }

    fn limits_text(in_flight: Option<f64>, busy: Option<f64>, unread: Option<f64>) -> String {
        let mut one =
            LoadResult { seconds: 1e-6, requests: 1, connections: 1, in_flight, ..LoadResult::empty("http://a/") };
        one.offered = OfferedLoad::Rate { rate: 1e6, due: 1e6, delayed: 0 };
        one.generator = GeneratorStats { busy, read_delay: unread, ..one.generator };
        let mut out = Vec::new();
        write_load(&one, &GeneratorPlacement::Anywhere, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn unobserved_cpu_use_is_not_zero() {
        let unseen = limits_text(None, None, None);
        assert!(unseen.contains("\nnone in flight within the measured 1.00 µs, 1 connection opened\n"), "{unseen}");
        assert!(unseen.contains("\ngenerator: how busy it was cannot be told of 1.00 µs\n"), "{unseen}");
        let seen = limits_text(Some(0.5), Some(0.0004), Some(10.0));
        assert!(seen.contains("\n0.50 in flight on average, 1 connection opened\n"), "{seen}");
        assert!(seen.contains("\ngenerator: <0.1 % busy, read answers 10.0 ns late\n"), "{seen}");
    }
}
